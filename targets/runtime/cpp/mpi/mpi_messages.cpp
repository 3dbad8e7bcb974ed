#include "mpi_messages.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <utility>

namespace stablexla {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::int64_t kLongest = std::int64_t(1) << 30;  // bytes of one message: MPI's counts are int
constexpr std::int64_t kCopied = 2 << 10;                 // eager limit: shorter messages are buffered at the send
constexpr milliseconds kLook{50}, kFirstQuestion{200}, kQuestion{300}, kGrace{100}, kWithdrawal{500};

void sleep_for(microseconds time) {
  const timespec duration{0, static_cast<long>(time.count()) * 1000};
  nanosleep(&duration, nullptr);
}

}  // namespace

MpiWait::MpiWait(MpiControl& control, const Place& place, const std::string& text, const std::vector<int>& here,
                 const std::vector<int>& awaited, const Waiting& waiting)
    : control_(control), waiting_(waiting), text_(text), here_(here), awaited_(awaited) {
  wait_.place = place;
  std::string trouble = control.trouble(place.run);
  if (!trouble.empty()) fail(std::move(trouble));
}

MpiWait::~MpiWait() {
  if (known_) control_.leave(wait_);
}

// Most waits end before the clock is first read.
bool MpiWait::pause(const MpiMessages* messages) {
  if (given_up_) return false;
  if (waiting_.stop != nullptr && waiting_.stop->load(std::memory_order_relaxed)) {
    fail("the run was stopped");
    return false;
  }
  ++spins_;
  if (control_.is_crowded() || spins_ > 64) sched_yield();
  if (spins_ % 16 != 0) return true;
  const Clock::time_point now = Clock::now();
  if (!known_) {
    known_ = true;
    since_ = now;
    next_look_ = now + kLook;
    next_question_ = now + kFirstQuestion;
    wait_.place.text = text_;
    wait_.here = here_;
    for (int device : awaited_) wait_.missing[device] = "";
    control_.enter(wait_);
    return true;
  }
  const auto waited = std::chrono::duration_cast<microseconds>(now - since_);
  if (waited > milliseconds(20)) sleep_for(std::min(microseconds(1000), waited / 100));
  if (now >= waiting_.until && grace_ == Clock::time_point()) {
    look(messages);
    if (why_.empty()) why_ = "not everybody has come within the time limit";
    given_up_ = true;
    return false;
  }
  return now < next_look_ || look(messages);
}

bool MpiWait::look(const MpiMessages* messages) {
  const Clock::time_point now = Clock::now();
  next_look_ = now + kLook;
  if (waiting_.pulse && waiting_.pulse()) {
    fail("the run was stopped");
    return false;
  }
  if (messages != nullptr)
    for (int rank : messages->heard())
      control_.arrived(wait_, wait_.place.run.where->ranks[static_cast<std::size_t>(rank)]);
  if (now >= next_question_) {
    next_question_ = now + kQuestion;
    control_.ask(wait_);
    asked_ = true;
  }
  std::string why = control_.look(wait_);
  if (why.empty()) return true;
  if (grace_ == Clock::time_point()) grace_ = now + kGrace;  // messages sent before may still arrive
  if (now < grace_) return true;
  fail(std::move(why));
  return false;
}

void MpiWait::fail(std::string why) {
  given_up_ = true;
  if (why_.empty()) why_ = std::move(why);
}

Failure MpiWait::failure() {
  if (known_) control_.leave(wait_);  // from now on only this thread accesses it
  Failure failure;
  failure.summary = why_.empty() ? "MPI has failed" : why_;
  failure.arrived = here_;
  const auto& missing = wait_.missing;
  for (int device : awaited_) {
    const auto found = missing.find(device);
    if (known_ && (found == missing.end() || found->second == text_)) {
      failure.arrived.push_back(device);
      continue;
    }
    const int process = wait_.place.run.where->process(device);
    std::string where = known_ ? found->second : "";
    if (where.empty() && asked_) where = "gives no answer: it computes, or has stopped";
    else if (where.empty()) where = "had not come";
    const std::string name = "process " + std::to_string(process);
    failure.missing[device] = where.compare(0, name.size(), name) == 0 ? where : name + ": " + where;
  }
  std::sort(failure.arrived.begin(), failure.arrived.end());
  return failure;
}

void MpiMessages::start(decltype(MpiLibrary::isend) send, int peer, const void* data, std::int64_t bytes, int stage) {
  char* next = static_cast<char*>(const_cast<void*>(data));
  do {
    const std::int64_t part = std::min(bytes, kLongest);
    const int size = static_cast<int>(part), tag = tag_ + stage;
    Request request{0, peer, send == nullptr};
    const int error = send != nullptr ? send(next, size, mpi_.byte, peer, tag, comm_, &request.handle)
                                      : mpi_.irecv(next, size, mpi_.byte, peer, tag, comm_, &request.handle);
    if (error != 0) {
      error_ = error;
      return;
    }
    requests_.push_back(request);
    next += part;
    bytes -= part;
  } while (bytes > 0);
}

void MpiMessages::receive(int peer, void* data, std::int64_t bytes, int stage) {
  takes_from_senders_ = takes_from_senders_ || bytes > kCopied;
  start(nullptr, peer, data, bytes, stage);
}

bool MpiMessages::is_done(std::size_t begin, std::size_t end, MpiWait& wait) {
  for (std::size_t i = begin; i < end && error_ == 0; ++i)
    if (!mpi_.is_done(requests_[i].handle, error_)) return false;
  if (error_ != 0) wait.fail(mpi_.said(error_));
  return error_ == 0;
}

bool MpiMessages::finish(std::size_t begin, std::size_t end, MpiWait& wait) {
  while (begin < end) {
    if (is_done(begin, begin + 1, wait)) {
      ++begin;
      continue;
    }
    if (error_ != 0 || !wait.pause(this)) return false;
  }
  if (error_ != 0) wait.fail(mpi_.said(error_));
  return error_ == 0;
}

std::vector<int> MpiMessages::heard() const {
  std::vector<int> ranks;
  for (const Request& request : requests_)
    if (request.is_receive && request.handle == mpi_.request_null) ranks.push_back(request.peer);
  return ranks;
}

char* MpiMessages::room(std::size_t bytes) {
  Block block = acquire_block(std::max<std::size_t>(bytes, 64));
  if (block.data == nullptr) throw std::bad_alloc();
  rooms_.push_back(block);
  return static_cast<char*>(block.data);
}

MpiMessages::~MpiMessages() {
  const auto open = [&](const Request& request) { return request.handle != mpi_.request_null; };
  const bool quiet = std::none_of(requests_.begin(), requests_.end(), open);
  if (quiet || withdraw())  // else a message into this memory may be in flight
    for (Block& block : rooms_) release_block(block);
}

// False where a message may still be received.
bool MpiMessages::withdraw() {
  const auto open = [&](const Request& request) { return request.handle != mpi_.request_null; };
  for (Request& request : requests_)
    if (open(request) && request.is_receive) mpi_.cancel(&request.handle);
  const Clock::time_point limit = Clock::now() + kWithdrawal;
  bool all = true;
  for (Request& request : requests_) {
    int error = 0;
    while (open(request) && !mpi_.is_done(request.handle, error) && Clock::now() < limit) {
      if (!request.is_receive) break;  // unmatched sends are left to MPI; their tags are never matched again
      sched_yield();
    }
    if (!open(request)) continue;
    all = all && !request.is_receive;
    mpi_.request_free(&request.handle);
  }
  return all;
}

}  // namespace stablexla
