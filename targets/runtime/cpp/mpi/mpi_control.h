// Control messages between processes: failures of a run, and, when a wait takes long, each other's position, for
// deadlock detection. Nothing is sent in the normal case.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "mpi_library.h"
#include "transport.h"

namespace stablexla {

// In the place of a collective's number: point-to-point messages, the first run in a place, and the gathering of results.
constexpr std::int64_t kMessages = -1, kGather = -2, kBegin = -3;

// Where devices of a process wait. Waits are identified by the numbers alone; the text is for errors.
struct Place {
  RunKey run;
  std::int64_t collective = 0;
  std::uint64_t visit = 0;
  int group = 0;
  std::string text;  // "all_reduce at program.py:12"

  bool operator==(const Place& other) const {
    return run == other.run && collective == other.collective && visit == other.visit && group == other.group;
  }
};

class MpiControl {
 public:
  // `pids` are the processes' by rank, 0 for one that cannot be observed from here.
  MpiControl(const MpiLibrary& mpi, MpiHandle comm, int rank, std::vector<int> pids, bool crowded);

  bool is_crowded() const { return crowded_; }
  int size() const { return static_cast<int>(pids_.size()); }

  std::uint64_t begin(std::uint64_t program);
  // Returns another process's failure of the run; "" where there is none.
  std::string trouble(RunKey run);
  // The same after so many polls for new messages; a poll takes one message of any kind.
  std::string new_trouble(RunKey run, int looks);
  void end(RunKey run);
  void failed(RunKey run, const std::string& why);
  void leave();  // tells the others that this process ends

  // A wait of one thread for members in other processes. From `enter` to `leave` any thread that receives news of them
  // writes to it, under the lock.
  struct Wait {
    Place place;
    std::vector<int> here;                  // devices that wait
    std::map<int, std::string> missing;     // devices that have not arrived, and where they are
    bool fatal = false;                     // they cannot arrive any more
    std::string why;                        // why not
    std::int32_t token = 0;
    std::map<int, Place> last;              // each process's last answer
  };
  void enter(Wait& wait);
  void leave(Wait& wait);
  void arrived(Wait& wait, int process);
  void ask(Wait& wait);   // queries the positions of missing devices
  // Polls messages, and whether the missing processes are alive; returns why they cannot arrive any more, else "".
  std::string look(Wait& wait);
  bool look_for_dead();   // whether a process has died
  // Whether all have announced their end, and nothing is in flight: MPI_Finalize may wait for messages.
  bool is_quiet();

  // A barrier of these processes: announces that this one is at `stage`, or that it has given up.
  void join(const std::vector<int>& ranks, std::uint64_t key, int stage);
  bool all_joined(const std::vector<int>& ranks, std::uint64_t key, int stage);
  void withdraw(const std::vector<int>& ranks, std::uint64_t key) { join(ranks, key, kWithdrawn); }

 private:
  static constexpr int kWithdrawn = -1;
  enum Kind : std::int32_t { kFailed, kLeft, kAsk, kAnswer, kGone, kJoin };
  struct Message {
    std::int32_t kind, sender, token, group;
    std::uint64_t program, number, source, visit;
    std::int64_t collective;
    std::int32_t stage;
    std::uint64_t here, missing;  // sets of devices, by number modulo 64
    char text[512];
  };
  struct Sent {
    Message message;
    MpiHandle request = 0;
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;

  void post(int process, const Message& message);
  void drain();
  void take(const Message& message);
  void answer(const Message& question);
  void hear(const Message& answer);
  Message message_of(Kind kind, const Place& place) const;
  std::string death_of(int process);

  const MpiLibrary& mpi_;
  const MpiHandle comm_;
  const int rank_;
  const std::vector<int> pids_;
  const bool crowded_;
  std::mutex mutex_;
  std::atomic<int> troubles_{0};  // entries of failures_ and left_: checked without the lock
  std::deque<std::unique_ptr<Sent>> sent_;
  std::map<Key, std::string> failures_;
  std::map<int, std::string> left_;
  std::set<int> dead_;
  std::map<std::uint64_t, std::uint64_t> runs_;       // runs begun of each program
  std::set<Key> active_;
  std::set<Wait*> waits_;
  std::int32_t tokens_ = 0;
  Clock::time_point next_drain_;
  std::map<std::tuple<std::uint64_t, int>, std::set<int>> joined_;
};

}  // namespace stablexla
