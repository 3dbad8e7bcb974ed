// Interface of transports between processes, such as that over MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collective.h"

namespace stablexla {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;  // max() where there is no limit

// A member of a group in this process, with its tables of addresses.
struct Member {
  int device = 0;
  void** outputs = nullptr;
  void** inputs = nullptr;
  Combine combine = nullptr;
};

// One run, the same in all processes.
struct RunKey {
  std::uint64_t program = 0;  // name and collectives of the program
  std::uint64_t number = 0;   // from `Transport::begin`
  int local = 1;              // devices of each process: device d belongs to process d / local
  std::uint64_t source = 0;   // digest of all of the program; processes with another one do not meet
};

// Conditions that a waiting thread polls.
struct Waiting {
  const std::atomic<bool>* stop = nullptr;  // set when the run is to end
  std::function<bool()> pulse;              // to be called about every 50 ms, may be empty; true when it is to give up
};

// A failure; none where the summary is empty.
struct Failure {
  std::string summary;
  std::vector<int> arrived;
  std::map<int, std::string> missing;
  std::int64_t number = -1;  // of the collective, where the caller cannot know it
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begins a run, and returns its number. `name` is the program's.
  virtual std::uint64_t begin(std::uint64_t program, const std::string& name) = 0;
  // Ends a run: all devices of this process have finished.
  virtual Failure end(RunKey run, Deadline deadline, const Waiting& waiting) = 0;
  // Reports a failure: the other processes stop that run.
  virtual void failed(RunKey run, const std::string& why) = 0;
  // Called by the last member in this process to arrive; `visit` counts the meetings of that group for that collective.
  virtual Failure run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
                      const std::vector<Member>& local, Deadline deadline, const Waiting& waiting) = 0;
  virtual Failure send(RunKey run, const Collective& what, int source, int target, void** inputs, Deadline deadline,
                       const Waiting& waiting) = 0;
  virtual Failure receive(RunKey run, const Collective& what, int source, int target, void** outputs,
                          Deadline deadline, const Waiting& waiting) = 0;
};

Transport* transport();  // null in a single-process run
void set_transport(Transport* transport);

}  // namespace stablexla
