#include "mpi_control.h"

#include <signal.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "system.h"

namespace stablexla {
namespace {

constexpr int kTag = 1;

std::uint64_t set_of(int device) { return std::uint64_t(1) << (static_cast<unsigned>(device) % 64); }

std::string process_name(int process) { return "process " + std::to_string(process); }

}  // namespace

MpiControl::MpiControl(const MpiLibrary& mpi, MpiHandle comm, int rank, std::vector<int> pids, bool crowded)
    : mpi_(mpi), comm_(comm), rank_(rank), pids_(std::move(pids)), crowded_(crowded) {}

MpiControl::Message MpiControl::message_of(Kind kind, const Place& place) const {
  Message message{};
  message.kind = kind;
  message.sender = rank_;
  message.program = place.run.program;
  message.number = place.run.number;
  message.source = place.run.source;
  message.collective = place.collective;
  message.visit = place.visit;
  message.group = place.group;
  std::strncpy(message.text, place.text.c_str(), sizeof message.text - 1);
  return message;
}

void MpiControl::post(int process, const Message& message) {
  auto sent = std::make_unique<Sent>();
  sent->message = message;
  if (mpi_.isend(&sent->message, sizeof(Message), mpi_.byte, process, kTag, comm_, &sent->request) != 0) return;
  sent_.push_back(std::move(sent));
}

void MpiControl::drain() {
  int error = 0;
  while (!sent_.empty() && mpi_.is_done(sent_.front()->request, error)) sent_.pop_front();
  for (;;) {
    MpiStatus status;
    int flag = 0;
    MpiHandle found = 0;
    if (mpi_.improbe(mpi_.any_source, kTag, comm_, &flag, &found, &status) != 0 || flag == 0) return;
    Message message;
    if (mpi_.mrecv(&message, sizeof message, mpi_.byte, &found, &status) != 0) return;
    take(message);
  }
}

void MpiControl::take(const Message& message) {
  switch (static_cast<Kind>(message.kind)) {
    case kFailed:
      if (failures_.emplace(Key{message.program, message.number}, message.text).second) ++troubles_;
      return;
    case kLeft:
      if (left_.emplace(message.sender, process_name(message.sender) + " has ended").second) ++troubles_;
      return;
    case kAsk:
      return answer(message);
    case kAnswer:
    case kGone:
      return hear(message);
    case kJoin:
      if (message.stage == kWithdrawn)
        for (auto& [meeting, processes] : joined_)
          if (std::get<0>(meeting) == message.program) processes.erase(message.sender);
      if (message.stage != kWithdrawn) joined_[{message.program, message.stage}].insert(message.sender);
      return;
  }
}

// Answers a query with this process's position: all its waits, or its state outside of that run.
void MpiControl::answer(const Message& question) {
  bool told = false;
  for (const Wait* wait : waits_) {
    Message message = message_of(kAnswer, wait->place);
    message.token = question.token;
    for (int device : wait->here) message.here |= set_of(device);
    for (const auto& [device, where] : wait->missing) message.missing |= set_of(device);
    post(question.sender, message);
    told = told || (wait->place.run.program == question.program && wait->place.run.number == question.number);
  }
  const Key key{question.program, question.number};
  if (told || active_.count(key) != 0) return;
  const auto runs = runs_.find(question.program);
  Place place;
  place.run.program = question.program, place.run.number = question.number, place.run.source = question.source;
  const bool over = runs != runs_.end() && runs->second > question.number;
  if (!over) return;
  place.text = "it has ended its run of the program";
  Message message = message_of(kGone, place);
  message.token = question.token;
  post(question.sender, message);
}

void MpiControl::hear(const Message& message) {
  for (Wait* wait : waits_) {
    if (wait->token != message.token) continue;
    const RunKey run = wait->place.run;
    const bool same_run = message.program == run.program && message.number == run.number;
    const bool is_over = message.kind == kGone ||
                         (same_run && message.collective == kGather && wait->place.collective != kGather);
    Place place;
    place.run.program = message.program, place.run.number = message.number;
    place.collective = message.collective, place.visit = message.visit, place.group = message.group;
    place.text = message.text;
    std::uint64_t mine = 0;
    for (int device : wait->here) mine |= set_of(device);
    bool awaited = false;
    for (auto& [device, where] : wait->missing) {
      if (run.where->process(device) != message.sender) continue;
      if (is_over || !same_run || (message.here & set_of(device)) != 0) {
        where = place.text;
        if (!same_run) where += ", in another run";
        awaited = awaited || same_run;
      }
    }
    if (is_over && awaited) {
      wait->fatal = true;
      wait->why = process_name(message.sender) + " has ended its run of the program";
    }
    if (same_run && message.source != run.source) {
      wait->fatal = true;
      wait->why = process_name(message.sender) + " has another program of this name";
    }
    const auto before = wait->last.find(message.sender);
    const bool again = before != wait->last.end() && before->second == place;
    // Deadlock: devices wait for one another at different places, and still do at a second query.
    if (message.kind == kAnswer && same_run && awaited && !(place == wait->place) && (message.missing & mine) != 0 &&
        again) {
      wait->fatal = true;
      wait->why = "devices wait for one another in different operations";
    }
    wait->last[message.sender] = place;
  }
}

std::string MpiControl::death_of(int process) {
  const auto left = left_.find(process);
  if (left != left_.end()) return left->second;
  const int pid = pids_[static_cast<std::size_t>(process)];
  if (pid == 0 || !((kill(pid, 0) != 0 && errno == ESRCH) || is_zombie(pid))) return "";
  const std::string text = process_name(process) + " (pid " + std::to_string(pid) + ") is gone";
  dead_.insert(process);
  if (left_.emplace(process, text).second) ++troubles_;
  return text;
}

std::uint64_t MpiControl::begin(std::uint64_t program) {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now > next_drain_) {  // a poll costs as much as a small message
    drain();
    next_drain_ = now + std::chrono::milliseconds(5);
  }
  const std::uint64_t number = runs_[program]++;
  active_.insert({program, number});
  // Drop messages about earlier runs that arrived after their end.
  const auto last = failures_.lower_bound({program, number});
  for (auto failure = failures_.lower_bound({program, 0}); failure != last;) {
    const bool over = active_.count(failure->first) == 0;
    if (over) --troubles_;
    failure = over ? failures_.erase(failure) : std::next(failure);
  }
  return number;
}

std::string MpiControl::trouble(RunKey run) {
  if (troubles_.load(std::memory_order_relaxed) == 0) return "";
  std::lock_guard lock(mutex_);
  const auto found = failures_.find({run.program, run.number});
  return found == failures_.end() ? "" : found->second;
}

std::string MpiControl::new_trouble(RunKey run, int looks) {
  {
    std::lock_guard lock(mutex_);
    for (int i = 0; i < looks; ++i) drain();
  }
  return trouble(run);
}

void MpiControl::end(RunKey run) {
  std::lock_guard lock(mutex_);
  active_.erase({run.program, run.number});
  if (failures_.erase({run.program, run.number}) != 0) --troubles_;
}

void MpiControl::failed(RunKey run, const std::string& why) {
  std::lock_guard lock(mutex_);
  drain();
  active_.erase({run.program, run.number});
  if (failures_.erase({run.program, run.number}) != 0) {  // already broadcast by another process
    --troubles_;
    return;
  }
  Place place;
  place.run = run;
  place.text = process_name(rank_) + ": " + (why.empty() ? "its devices have stopped" : why);
  const Message message = message_of(kFailed, place);
  for (int process : run.where->ranks)
    if (process != rank_ && left_.count(process) == 0) post(process, message);
}

// Also to those that leave: they wait for every process's message.
void MpiControl::leave() {
  std::lock_guard lock(mutex_);
  drain();
  for (int process = 0; process < size(); ++process)
    if (process != rank_ && dead_.count(process) == 0) post(process, message_of(kLeft, Place{}));
}

void MpiControl::enter(Wait& wait) {
  std::lock_guard lock(mutex_);
  wait.token = ++tokens_;
  waits_.insert(&wait);
}

void MpiControl::leave(Wait& wait) {
  std::lock_guard lock(mutex_);
  waits_.erase(&wait);
}

void MpiControl::arrived(Wait& wait, int process) {
  std::lock_guard lock(mutex_);
  for (auto entry = wait.missing.begin(); entry != wait.missing.end();)
    entry = wait.place.run.where->process(entry->first) == process ? wait.missing.erase(entry) : std::next(entry);
}

void MpiControl::ask(Wait& wait) {
  std::lock_guard lock(mutex_);
  std::set<int> processes;
  for (const auto& [device, where] : wait.missing) processes.insert(wait.place.run.where->process(device));
  Message message = message_of(kAsk, wait.place);
  message.token = wait.token;
  for (int process : processes)
    if (left_.count(process) == 0) post(process, message);
}

bool MpiControl::look_for_dead() {
  std::lock_guard lock(mutex_);
  drain();
  for (int process = 0; process < size(); ++process)
    if (process != rank_) death_of(process);
  return !dead_.empty();
}

bool MpiControl::is_quiet() {
  std::lock_guard lock(mutex_);
  drain();
  return sent_.empty() && left_.size() + 1 == pids_.size();
}

std::string MpiControl::look(Wait& wait) {
  std::lock_guard lock(mutex_);
  drain();
  const auto failure = failures_.find({wait.place.run.program, wait.place.run.number});
  if (failure != failures_.end()) {  // more specific than the end of another process's run, which may come with it
    wait.fatal = true;
    wait.why = failure->second;
  }
  if (wait.fatal) return wait.why;
  for (auto& [device, where] : wait.missing) {
    const std::string death = death_of(wait.place.run.where->process(device));
    if (death.empty()) continue;
    where = death;
    wait.fatal = true;
    wait.why = death;
  }
  return wait.why;
}

void MpiControl::join(const std::vector<int>& ranks, std::uint64_t key, int stage) {
  std::lock_guard lock(mutex_);
  Place place;
  place.run.program = key;
  Message message = message_of(kJoin, place);
  message.stage = stage;
  for (int process : ranks)
    if (process != rank_) post(process, message);
  take(message);
}

bool MpiControl::all_joined(const std::vector<int>& ranks, std::uint64_t key, int stage) {
  std::lock_guard lock(mutex_);
  drain();
  return joined_[{key, stage}].size() == ranks.size();
}

}  // namespace stablexla
