// A program over several devices: its collectives, where its devices are, and its runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective.h"
#include "json.h"
#include "plain_run.h"
#include "transport.h"

namespace stablexla {

class DeviceRun;

class DeviceProgram {
 public:
  // From the compiler's configurations of the collectives. All devices are in this process at first. Throws
  // std::invalid_argument, as do those below, where the numbers do not fit together.
  DeviceProgram(const std::string& name, const Json::List& configs, int num_devices);
  ~DeviceProgram();
  DeviceProgram(const DeviceProgram&) = delete;

  // From now on each device is in that process. `key` is another one for other devices of the same processes.
  void place_in(const std::vector<int>& processes, std::uint64_t key);
  const Placement& where() const { return *where_; }
  RunKey key() const { return {program_ ^ where_->key, 0, where_, source}; }
  // Tells the other processes that this one does not participate in the next run: they must not wait for it.
  void refuse(const std::string& why) const;

  // State of a run, which goes back if it can be reused.
  std::unique_ptr<DeviceRun> take_run(const Placement& where) const;
  void give_back(std::unique_ptr<DeviceRun> run) const;

  // Runs the program on all devices at once, all of them in this process, on the buffers of each. Throws
  // std::runtime_error when the system gives no more threads.
  PlainEnd run_plain(const PlainCode& code, std::vector<std::vector<void*>>& buffers, double seconds,
                     RunControl& control) const;

  std::vector<Collective> collectives;
  std::uint64_t source = 0;  // digest of the program, which all processes must have; 0 where none asked

 private:
  std::uint64_t program_ = 0;  // the same in all processes
  const Placement* where_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<DeviceRun>> idle_runs_;  // pooled: their meetings are many small allocations
};

}  // namespace stablexla
