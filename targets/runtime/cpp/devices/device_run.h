// One run of a program over devices: shared state, waiting, and detection of failures and deadlocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device_messages.h"
#include "rendezvous.h"
#include "stopping.h"
#include "transport.h"

extern "C" {
// Executes the program's collective of that number on the running device; the tables hold the arrays' addresses, and
// `combine` is null where nothing is reduced. Where the run ends early, the program is left here.
__attribute__((visibility("default"))) void stablexla_collective(std::int64_t number, void** outputs, void** inputs,
                                                                 stablexla::Combine combine);
}

namespace stablexla {

class DeviceRun;
class DeviceThreads;

// A device of this process in one run.
struct alignas(kSharingBytes) Device {
  enum State : int { kRunning, kWaiting, kFinished, kFailed };

  DeviceRun* run = nullptr;
  int number = 0;
  bool is_caller = false;            // runs on the calling thread, which polls for signals
  std::atomic<int> state{kRunning};
  std::atomic<std::int64_t> at{-1};  // the last collective that it reached
};

// Why a run ended before its time, as plain values; `DeviceRun::explained` makes sentences of them.
struct Stop {
  enum Kind { kNone, kDeadlock, kTimeLimit, kRaised, kInterrupted, kOuter, kMismatch, kUnreceived, kTransport, kLimits };

  Kind kind = kNone;
  int device = -1;          // that noticed
  std::int64_t number = -1; // of the collective
  std::vector<int> group;
  Failure said;             // by the transport
  std::vector<DeviceMessages::Unreceived> unreceived;
  struct Where {
    int device, state;
    std::int64_t at;
  };
  std::vector<Where> devices;

  const char* text() const;  // the kind in a word or two
};

using Collectives = std::vector<Collective>;

class DeviceRun {
 public:
  DeviceRun(const Collectives& collectives, const Placement& where);  // for the devices of this process
  DeviceRun(const DeviceRun&) = delete;

  // Calls `body` with the place of each device of this process, on threads of their own but the first, which runs on
  // the calling thread. `control` can stop the run; `seconds` limits how long a device waits, less than 0 for ever.
  // Returns whether all went well, so that the run can be reused.
  using Body = std::function<void(std::size_t)>;
  bool execute(DeviceThreads& threads, RunControl& control, double seconds, RunKey key, const Body& body);
  // To be called by each device's body at its end, with its outcome.
  void finish(Device& device, bool well);
  // Stops the run where its control was stopped; returns whether it was.
  bool stop_by_control(const Device& device);

  // The program's requests; false where the run ends.
  bool meet(Device& device, const Collective& what, void** outputs, void** inputs, Combine combine);

  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  void stop(Stop::Kind kind, int device, std::int64_t number = -1, const std::vector<int>* group = nullptr,
            Failure said = {});
  const Stop& why() const { return why_; }
  Failure explained() const;  // why it was stopped, which devices had arrived, and where the others were
  std::string error_text(const std::string& program) const;  // the same as the lines of an error
  const Collectives& collectives() const { return collectives_; }
  const Placement& where() const { return where_; }
  int count() const { return static_cast<int>(devices_.size()); }
  Device& device(std::size_t i) { return devices_[i]; }

 private:
  bool begin(RunControl& control, double seconds, RunKey key);  // false where it does not begin
  void wait_for_all(Device& caller);  // when its own device has finished
  bool end(Device& caller);           // when all have
  bool join(Device& device, const Collective& what, void** outputs, void** inputs, Combine combine);
  void complete(Device& device, Meeting& meeting);
  bool wait(Device& device, Meeting& meeting, std::uint32_t seen, bool is_open);
  bool send(Device& device, const Collective& what, void** inputs);
  bool receive(Device& device, const Collective& what, void** outputs);
  bool receive_here(Device& device, const Collective& what, const Route& route, void** outputs);
  enum class Slept { kChanged, kStopped, kLate };
  // Sleeps until the word changes.
  Slept sleep(Device& device, Word& word, std::uint32_t seen, Deadline until);
  bool look_around(Device& device);  // by the calling thread: polls signals, and the enclosing run
  void now_idle(Device& device, const Collective& what, const std::vector<int>& group);
  Deadline deadline() const { return deadline_after(seconds_); }
  Waiting waiting(Device& device);

  const Collectives& collectives_;
  const Placement& where_;
  std::vector<Device> devices_;
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  // of each collective for each group; null if not here
  DeviceMessages messages_;
  RunControl* control_ = nullptr;
  double seconds_ = -1;
  const Device* outer_ = nullptr;
  Transport* transport_ = nullptr;  // null where all devices are in this process
  RunKey key_;
  bool spins_ = false;  // there are cores for all

  // Devices that wait or have finished. A thread that releases others subtracts them before they wake, so that the
  // count reaches all devices only in a deadlock.
  alignas(kSharingBytes) std::atomic<int> idle_{0};
  std::atomic<int> finished_{0};
  Word running_{0};  // devices that have not finished
  std::atomic<bool> stopped_{false};
  std::mutex turn_;  // held by the thread that stops the run
  Stop why_;
};

}  // namespace stablexla
