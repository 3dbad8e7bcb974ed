#include "device_run.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "device_threads.h"
#include "thread_pool.h"

namespace stablexla {
namespace {

constexpr std::chrono::microseconds kSpin(30), kYield(50);
constexpr std::chrono::milliseconds kLook(50);  // the calling thread's polling interval for signals
constexpr const char* kNoMemory = "there is no memory for a message";

std::atomic<int> devices_at_work{0};  // devices of all runs

int cores() {
  static const int count = default_num_threads();
  return count;
}

void fill_zeros(const Collective& what, void** outputs) {
  for (std::size_t i = 0; i < what.operands.size(); ++i)
    std::memset(outputs[i], 0, static_cast<std::size_t>(what.operands[i].output_bytes));
}

}  // namespace

const char* Stop::text() const {
  constexpr const char* names[] = {"",      "deadlock", "time limit", "raised",    "interrupted",
                                   "outer", "mismatch", "unreceived", "transport", "its run was stopped"};
  return names[kind];
}

DeviceRun::DeviceRun(const Collectives& collectives, const Placement& where)
    : collectives_(collectives), where_(where), devices_(where.here.size()) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].run = this;
    devices_[i].number = where.here[i];
  }
  devices_[0].is_caller = true;
  for (const Collective& what : collectives) {
    meetings_.emplace_back();
    if (what.is_message()) continue;
    for (std::size_t group = 0; group < what.groups.size(); ++group) {
      auto meeting = std::make_unique<Meeting>(what, group, where);
      if (meeting->members().empty()) meeting = nullptr;
      meetings_.back().push_back(std::move(meeting));
    }
  }
}

bool DeviceRun::execute(DeviceThreads& threads, RunControl& control, double seconds, RunKey key, const Body& body) {
  if (begin(control, seconds, key)) {
    const auto job = [](void* given, std::size_t index) { (*static_cast<const Body*>(given))(index + 1); };
    threads.start(job, const_cast<Body*>(&body), spins_);
    body(0);
    wait_for_all(devices_[0]);
  }
  return end(devices_[0]);
}

bool DeviceRun::begin(RunControl& control, double seconds, RunKey key) {
  control_ = &control;
  seconds_ = seconds;
  outer_ = innermost_run_here.device;
  transport_ = where_.is_whole() ? nullptr : transport();
  idle_.store(0);
  finished_.store(0);
  running_.store(static_cast<std::uint32_t>(count()));
  for (Device& device : devices_) {
    device.state.store(Device::kRunning);
    device.at.store(-1);
  }
  spins_ = devices_at_work.fetch_add(count()) + count() <= cores();
  key_ = key;
  if (transport_ == nullptr) return true;
  // visits identify meetings across processes, which may have had other runs before
  for (auto& groups : meetings_)
    for (auto& meeting : groups)
      if (meeting != nullptr) meeting->begin();
  Failure said = transport_->begin(key_, waiting(devices_[0]));
  if (said.summary.empty()) return true;
  said.summary = "not all processes have come to run the program: " + said.summary;
  std::vector<int> all(where_.processes.size());
  std::iota(all.begin(), all.end(), 0);
  stop(Stop::kTransport, devices_[0].number, -1, &all, std::move(said));
  return false;
}

void DeviceRun::finish(Device& device, bool well) {
  device.state.store(well ? Device::kFinished : Device::kFailed);
  const int finished = finished_.fetch_add(1) + 1;
  if (idle_.fetch_add(1) + 1 == count() && finished < count()) {
    // deadlock: the others wait for a device that has finished; one of them reports it for all
    for (Device& other : devices_) {
      if (other.state.load() != Device::kWaiting) continue;
      const Collective& what = collectives_[static_cast<std::size_t>(other.at.load())];
      const Seat seat = what.seat(other.number);
      std::vector<int> both;  // the sender and the receiver
      for (auto [source, target] : what.pairs)
        if (what.op == Op::kRecv && target == other.number) both = {source, target};
      stop(Stop::kDeadlock, other.number, what.number,
           seat.group < 0 ? &both : &what.groups[static_cast<std::size_t>(seat.group)]);
      break;
    }
  }
  if (running_.fetch_sub(1) == 1) futex_wake(running_, 1);
}

void DeviceRun::wait_for_all(Device& caller) {
  const auto none = [&] { return running_.load(std::memory_order_acquire) == 0; };
  if (none() || (spins_ ? spin_until(none, kSpin) : yield_until(none, kYield))) return;
  while (!none()) {
    const std::uint32_t seen = running_.load();
    if (seen != 0) futex_wait(running_, seen, kLook);
    if (!none()) look_around(caller);
  }
}

bool DeviceRun::end(Device& caller) {
  devices_at_work.fetch_sub(count());
  if (!is_stopped()) {
    auto unreceived = messages_.unreceived();
    if (!unreceived.empty()) {
      stop(Stop::kUnreceived, std::get<1>(unreceived[0].route), unreceived[0].what->number);
      why_.unreceived = std::move(unreceived);
    }
  }
  if (!is_stopped() && transport_ != nullptr) {
    Failure said = std::exchange(transport_, nullptr)->end(key_, waiting(caller));
    const std::int64_t number = said.number;
    if (!said.summary.empty()) stop(Stop::kTransport, caller.number, number, nullptr, std::move(said));
  }
  messages_.clear();
  return !is_stopped();
}

Waiting DeviceRun::waiting(Device& device) {
  if (!device.is_caller) return {&stopped_, nullptr, deadline()};
  return {&stopped_, [this, &device] { return look_around(device); }, deadline()};
}

bool DeviceRun::look_around(Device& device) {
  if (is_stopped()) return true;
  control_->look_for_signals();
  if (outer_ != nullptr && outer_->run->is_stopped()) stop(Stop::kOuter, device.number);
  return stop_by_control(device) || is_stopped();
}

// Before a device finishes, since the others would take its end for a deadlock.
bool DeviceRun::stop_by_control(const Device& device) {
  const Ending why = control_->end().why;
  if (why == Ending::kInterrupted) stop(Stop::kInterrupted, devices_[0].number);  // the caller has the exception
  else if (why != Ending::kNone) stop(Stop::kLimits, device.number);
  return why != Ending::kNone;
}

void DeviceRun::stop(Stop::Kind kind, int device, std::int64_t number, const std::vector<int>* group, Failure said) {
  {
    std::lock_guard<std::mutex> lock(turn_);
    if (why_.kind != Stop::kNone) return;
    why_.kind = kind;
    why_.device = device;
    why_.number = number;
    if (group != nullptr) why_.group = *group;
    why_.said = std::move(said);
    for (Device& each : devices_) why_.devices.push_back({each.number, each.state.load(), each.at.load()});
    stopped_.store(true);
    if (kind != Stop::kLimits) control_->stop(Ending::kDevices);  // for the devices that are in machine code
  }
  for (auto& groups : meetings_)
    for (auto& meeting : groups)
      if (meeting != nullptr) meeting->stop();
  messages_.stop();
  if (transport_ != nullptr) transport_->failed(key_, why_.said.summary.empty() ? why_.text() : why_.said.summary);
}

bool DeviceRun::meet(Device& device, const Collective& what, void** outputs, void** inputs, Combine combine) {
  if (is_stopped()) return false;
  device.at.store(what.number, std::memory_order_relaxed);
  if (what.gets_nothing(device.number)) fill_zeros(what, outputs);
  if (what.is_message()) {
    try {
      return what.op == Op::kSend ? send(device, what, inputs) : receive(device, what, outputs);
    } catch (const std::bad_alloc&) {
      stop(Stop::kTransport, device.number, what.number, nullptr, {kNoMemory, {}, {}});
      return false;
    }
  }
  return what.seat(device.number).group < 0 || join(device, what, outputs, inputs, combine);
}

bool DeviceRun::join(Device& device, const Collective& what, void** outputs, void** inputs, Combine combine) {
  const Seat seat = what.seat(device.number);
  Meeting& meeting =
      *meetings_[static_cast<std::size_t>(what.number)][static_cast<std::size_t>(seat.group)];
  const std::uint32_t seen = meeting.phase();
  if (meeting.arrive(seat.position, outputs, inputs, combine)) {
    complete(device, meeting);
    return !is_stopped();
  }
  device.state.store(Device::kWaiting, std::memory_order_release);
  now_idle(device, what, what.groups[static_cast<std::size_t>(seat.group)]);
  const bool done = wait(device, meeting, seen, false);
  device.state.store(Device::kRunning, std::memory_order_relaxed);
  return done;
}

void DeviceRun::now_idle(Device& device, const Collective& what, const std::vector<int>& group) {
  if (idle_.fetch_add(1) + 1 == count()) stop(Stop::kDeadlock, device.number, what.number, &group);
}

// Called by the last to arrive. The others count as busy from now on.
void DeviceRun::complete(Device& device, Meeting& meeting) {
  idle_.fetch_sub(static_cast<int>(meeting.members().size()) - 1);
  if (meeting.is_local()) {
    meeting.complete(cores());
    const std::uint32_t now = meeting.phase();
    if (Meeting::is_open(now)) wait(device, meeting, now, true);
    return;
  }
  Failure said;
  try {
    said = transport_->run(key_, meeting.visits(), meeting.what(), meeting.group(), meeting.members(),
                           waiting(device));
  } catch (const std::bad_alloc&) {
    said.summary = kNoMemory;
  }
  if (!said.summary.empty())
    stop(Stop::kTransport, device.number, meeting.what().number, &meeting.what().groups[meeting.group()],
         std::move(said));
  meeting.end();
}

bool DeviceRun::wait(Device& device, Meeting& meeting, std::uint32_t seen, bool is_open) {
  Deadline until = is_open ? Deadline::max() : deadline();
  for (;;) {
    const auto changed = [&] { return meeting.phase() != seen; };
    if (!(spins_ ? spin_until(changed, kSpin) : yield_until(changed, kYield)) && !changed()) {
      meeting.begin_sleep();
      const Slept slept = sleep(device, meeting.word(), seen, until);
      meeting.end_sleep();
      if (slept == Slept::kLate) {
        // where the others of this process have arrived too, they are the ones that wait for other processes
        until = Deadline::max();
        if (!meeting.is_complete())
          stop(Stop::kTimeLimit, device.number, meeting.what().number, &meeting.what().groups[meeting.group()]);
      }
      // Once all have arrived, the others read memory that this thread's stack points to.
      if (is_stopped() && meeting.withdraw()) return false;
      if (is_stopped())
        while (!changed()) sched_yield();
    }
    if (!changed()) continue;
    seen = meeting.phase();
    if (!Meeting::is_open(seen)) return !is_stopped();
    until = Deadline::max();
    meeting.help();
  }
}

// The word must change when the run is stopped.
DeviceRun::Slept DeviceRun::sleep(Device& device, Word& word, std::uint32_t seen, Deadline until) {
  Slept slept = Slept::kChanged;
  while (word.load() == seen) {
    const auto now = Clock::now();
    if (is_stopped()) slept = Slept::kStopped;
    else if (now >= until) slept = Slept::kLate;
    if (slept != Slept::kChanged) break;
    if (device.is_caller) {
      futex_wait(word, seen, std::min<Clock::duration>(kLook, until - now));
      if (word.load() == seen) look_around(device);
    } else if (until == Deadline::max()) {
      futex_wait(word, seen);
    } else {
      futex_wait(word, seen, until - now);
    }
  }
  return is_stopped() ? Slept::kStopped : slept;
}

}  // namespace stablexla

extern "C" void stablexla_collective(std::int64_t number, void** outputs, void** inputs, stablexla::Combine combine) {
  const stablexla::Innermost& here = stablexla::innermost_run_here;
  stablexla::DeviceRun& run = *here.device->run;
  const auto& what = run.collectives()[static_cast<std::size_t>(number)];
  if (!run.meet(*here.device, what, outputs, inputs, combine)) _longjmp(*here.way_out, 1);
}
