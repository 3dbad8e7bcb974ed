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
Deadline deadline_after(double seconds);  // none where it is less than 0

// A member of a group in this process, with its tables of addresses.
struct Member {
  int device = 0;
  void** outputs = nullptr;
  void** inputs = nullptr;
  Combine combine = nullptr;
};

// Where the devices of a program are.
struct Placement {
  std::vector<int> processes;  // of each device
  std::vector<int> here, elsewhere;  // this process's devices, in ascending order, and those of the others
  std::vector<int> positions;  // of each device in `here`; -1 in another process
  std::vector<int> ranks;      // the processes that have devices, by their first ones: the communicator's order
  std::uint64_t key = 0;       // tells apart the runs of one program in different places

  int process(int device) const { return processes[static_cast<std::size_t>(device)]; }
  bool is_here(int device) const { return positions[static_cast<std::size_t>(device)] >= 0; }
  bool is_whole() const { return here.size() == processes.size(); }
};

// There is one for each list of processes and key, for good. `rank` is of this process.
const Placement& placement_of(const std::vector<int>& processes, int rank, std::uint64_t key);

// One run, the same in all processes that take part.
struct RunKey {
  std::uint64_t program = 0;  // name and collectives of the program, and where it runs
  std::uint64_t number = 0;   // from `Transport::begin`
  const Placement* where = nullptr;
  std::uint64_t source = 0;   // digest of all of the program; processes with another one do not meet

  bool operator==(const RunKey& other) const { return program == other.program && number == other.number; }
};

// Conditions that a waiting thread polls.
struct Waiting {
  const std::atomic<bool>* stop = nullptr;  // set when the run is to end
  std::function<bool()> pulse;              // to be called about every 50 ms, may be empty; true when it is to give up
  Deadline until = Deadline::max();
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
  // Begins a run, and numbers it. The first one in a place waits for the other processes.
  virtual Failure begin(RunKey& run, const Waiting& waiting) = 0;
  // Instead of `begin`: the other processes stop that run.
  virtual void refuse(RunKey run, const std::string& why) = 0;
  // Ends a run: all devices of this process have finished.
  virtual Failure end(RunKey run, const Waiting& waiting) = 0;
  // Reports a failure: the other processes stop that run.
  virtual void failed(RunKey run, const std::string& why) = 0;
  // Called by the last member in this process to arrive; `visit` counts the meetings of that group for that collective.
  virtual Failure run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
                      const std::vector<Member>& local, const Waiting& waiting) = 0;
  // Does not wait: `end` does, until what was sent has been received.
  virtual void send(RunKey run, const Collective& what, int source, int target, void** inputs) = 0;
  virtual Failure receive(RunKey run, const Collective& what, int source, int target, void** outputs,
                          const Waiting& waiting) = 0;
};

Transport* transport();  // null in a single-process run
void set_transport(Transport* transport);

}  // namespace stablexla
