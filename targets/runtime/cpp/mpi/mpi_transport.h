// Devices of other processes, over MPI.
//
// All waits poll, so that time limits hold and failures elsewhere are noticed. Tags of messages are hashes of the
// program, the run, the collective and the visit: devices that disagree on the order of collectives deadlock, which is
// detected, and never confuse their data.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "mpi_control.h"
#include "mpi_data.h"
#include "mpi_library.h"
#include "mpi_messages.h"
#include "transport.h"

namespace stablexla {

struct MpiWorld {
  int rank = 0, size = 1;
  MpiHandle data = 0, control = 0;  // communicators over all processes
  std::vector<int> pids;            // by rank, 0 on another machine
  bool crowded = false;             // more processes than cores on this machine
};

class MpiTransport : public Transport {
 public:
  MpiTransport(MpiLibrary library, MpiWorld world);

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  std::uint64_t begin(std::uint64_t program, const std::string& name) override;
  Failure end(RunKey run, Deadline deadline, const Waiting& waiting) override;
  void failed(RunKey run, const std::string& why) override;
  Failure run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
              const std::vector<Member>& local, Deadline deadline, const Waiting& waiting) override;
  Failure send(RunKey run, const Collective& what, int source, int target, void** inputs, Deadline deadline,
               const Waiting& waiting) override;
  Failure receive(RunKey run, const Collective& what, int source, int target, void** outputs, Deadline deadline,
                  const Waiting& waiting) override;

  // Creates communicators of these sets of processes, the same in all processes, where there are none yet. Waits for
  // all processes first: the creation cannot be interrupted.
  Failure prepare(int local, const std::vector<std::vector<int>>& sets, Deadline deadline, const Waiting& waiting);
  // All-gather after the last run of this thread, in which each process has `local` devices: sends the arrays `own` to
  // all others, and receives theirs in others[process].
  struct Array {
    void* data;
    std::int64_t bytes;
  };
  Failure gather(int local, const std::vector<Array>& own, const std::vector<std::vector<Array>>& others,
                 Deadline deadline, const Waiting& waiting);
  // Announces this process's end, and waits for the others'; with this time limit where something has failed. False
  // when it runs out.
  bool leave(double seconds, bool failed);

 private:
  // A group of a collective, with its run-invariant data.
  struct Plan {
    std::vector<int> processes, here, awaited;
    MpiGroup group;
    MpiHandle comm = 0;
    bool is_own = false;  // the communicator is of these processes, not of the world
    std::string text;
  };
  // A message that its receiver has not matched yet.
  struct Sent {
    RunKey run;
    Place route;
    std::string text;
    std::int64_t number = -1;
    int target = 0;
    std::vector<char> data;
    std::unique_ptr<MpiMessages> messages;
  };

  // Whether received data is valid: no sender has failed meanwhile.
  bool is_good(RunKey run, const MpiMessages& messages, int looks, MpiWait& wait);
  int looks();  // how often to poll, by the time since the last collective
  const Plan& plan_of(RunKey run, const Collective& what, std::size_t group);
  int make_communicator(const std::vector<int>& processes);
  int tag_of(const Place& place) const;
  Place route_of(RunKey run, const Collective& what, int source, int target, bool sends);

  const MpiLibrary mpi_;
  const MpiWorld world_;
  MpiControl control_;
  std::mutex mutex_, making_;
  std::atomic<bool> failed_{false};  // the last run
  std::atomic<Clock::rep> last_end_{0};
  std::set<std::vector<int>> prepared_;
  std::map<std::vector<int>, MpiHandle> communicators_;
  std::map<std::tuple<std::uint64_t, std::int64_t, std::size_t, int>, std::unique_ptr<Plan>> plans_;
  std::list<Sent> sent_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::int64_t, int, int, bool>, std::uint64_t> counts_;
};

}  // namespace stablexla
