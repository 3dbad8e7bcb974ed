// Devices of other processes, over MPI.
//
// All that is waited for is polled, so that a time limit holds and a failure elsewhere is seen. The data goes by
// messages whose tags are made of the program, the run, the collective and the visit: devices that disagree on the
// order of collectives wait for each other, which is found out, and never take one's data for another's.
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
  MpiHandle data = 0, control = 0;  // communicators of all processes
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

  // Makes communicators of these sets of processes, the same in all processes, where there are none yet. All processes
  // must have come, which is waited for: making one cannot be given up.
  Failure prepare(int local, const std::vector<std::vector<int>>& sets, Deadline deadline, const Waiting& waiting);
  // After the last run of this thread, in which each process has `local` devices: the arrays `own` go to all others,
  // and theirs come to others[process].
  struct Array {
    void* data;
    std::int64_t bytes;
  };
  Failure gather(int local, const std::vector<Array>& own, const std::vector<std::vector<Array>>& others,
                 Deadline deadline, const Waiting& waiting);
  // Tells the others that this process ends, and waits for them to end too; for so many seconds where something has
  // failed. False when they do not.
  bool leave(double seconds, bool failed);

 private:
  // A group of a collective, with what does not change from run to run.
  struct Plan {
    std::vector<int> processes, here, awaited;
    MpiGroup group;
    MpiHandle comm = 0;
    bool is_own = false;  // the communicator is that of these processes, not of the world
    std::string text;
  };
  // A message that its receiver has not begun to take.
  struct Sent {
    RunKey run;
    Place route;
    std::string text;
    std::int64_t number = -1;
    int target = 0;
    std::vector<char> data;
    std::unique_ptr<MpiMessages> messages;
  };

  // Whether what was received is what was sent: no sender has failed meanwhile.
  bool is_good(RunKey run, const MpiMessages& messages, int looks, MpiWait& wait);
  int looks();  // how often to look for it, from the time that has passed since the last collective
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
