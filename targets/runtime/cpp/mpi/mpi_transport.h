// Devices of other processes, over MPI.
//
// All waits poll, so that time limits hold and failures elsewhere are noticed. Tags of messages are hashes of the
// program, the run, the collective and the visit: devices that disagree on the order of collectives deadlock, which is
// detected, and never confuse their data. Each list of processes has a communicator of its own.
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
  Failure begin(RunKey& run, const Waiting& waiting) override;
  void refuse(RunKey run, const std::string& why) override;
  Failure end(RunKey run, const Waiting& waiting) override;
  void failed(RunKey run, const std::string& why) override;
  Failure run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
              const std::vector<Member>& local, const Waiting& waiting) override;
  void send(RunKey run, const Collective& what, int source, int target, void** inputs) override;
  Failure receive(RunKey run, const Collective& what, int source, int target, void** outputs,
                  const Waiting& waiting) override;

  // All-gather after the last run of this thread, among the processes of that run: sends this one's arrays to the
  // others, and receives theirs. Addresses and bytes, by process.
  using Arrays = std::map<int, std::vector<std::pair<std::uintptr_t, std::int64_t>>>;
  Failure gather(const Arrays& arrays, const Waiting& waiting);
  // Announces this process's end, and waits for the others'; with this time limit where something has failed. False
  // when it runs out.
  bool leave(double seconds, bool failed);

 private:
  // A group of a collective, with its run-invariant data.
  struct Plan {
    std::vector<int> here, awaited;
    MpiGroup group;
    MpiHandle comm = 0;
    std::string text;
  };
  // A message that its receiver has not matched yet.
  struct Sent {
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
  // Creates the communicator of these processes. Waits for them first: the creation cannot be interrupted.
  Failure meet(RunKey run, const Waiting& waiting);
  int make_communicator(const std::vector<int>& ranks, int tag);
  MpiHandle communicator(const Placement& where);  // 0 where there is none yet
  int rank_of(RunKey run, int device) const;       // in the communicator
  int tag_of(const Place& place) const;
  Place route_of(RunKey run, const Collective& what, int source, int target, bool sends);

  const MpiLibrary mpi_;
  const MpiWorld world_;
  MpiControl control_;
  std::mutex mutex_;
  std::atomic<bool> failed_{false};  // the last run
  std::atomic<Clock::rep> last_end_{0};
  std::map<std::vector<int>, std::mutex> making_;
  std::map<std::vector<int>, MpiHandle> communicators_;  // by the processes, in their order
  std::map<std::tuple<std::uint64_t, std::int64_t, std::size_t>, std::unique_ptr<Plan>> plans_;
  std::list<Sent> sent_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::int64_t, int, int, bool>, std::uint64_t> counts_;
};

}  // namespace stablexla
