// Rendezvous of a group's devices: arrivals, and the chunks of work that they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "collective_work.h"
#include "waiting.h"

namespace stablexla {

// One group of one collective in one run. No member can arrive for the next visit before all have left.
//
// `phase` counts: even while members come, odd while there is work to share, then even again. A thread that waits for a
// change of it sleeps on it; `kStopped` wakes them when the run ends before its time.
class Meeting {
 public:
  static constexpr std::uint32_t kStopped = 1u << 31;

  Meeting(const Collective& what, std::size_t group, const Placement& where);

  const Collective& what() const { return what_; }
  std::size_t group() const { return group_; }
  bool is_local() const { return is_local_; }
  const std::vector<Member>& members() const { return members_; }  // those in this process, in the group's order
  std::uint64_t visits() const { return visits_; }  // since `begin`
  void begin() { visits_ = 0; }

  // Publishes a member's tables of addresses. True for the last to arrive, which has to call `complete`, or `end` after
  // it has done the work in another way.
  bool arrive(int position, void** outputs, void** inputs, Combine combine);
  // Withdraws an arrival because the run ends; false if all have arrived, so that the work is in progress and must be
  // waited for.
  bool withdraw();

  std::uint32_t phase() const { return phase_.load(std::memory_order_acquire) & ~kStopped; }
  static bool is_open(std::uint32_t phase) { return (phase & 1) != 0; }
  bool is_complete() const { return arrived_.load(std::memory_order_acquire) == members_.size(); }
  void complete(int cores);
  void help();  // takes chunks until there are none
  void end();

  Word& word() { return phase_; }
  void stop();
  // Registers a sleeper on `word`.
  void begin_sleep() { sleepers_.fetch_add(1); }
  void end_sleep() { sleepers_.fetch_sub(1); }

 private:
  static constexpr std::int64_t kAlone = 48 << 10;  // up to so many bytes are moved faster than other threads are woken
  static constexpr std::uint32_t kWithdrawn = 1u << 31;

  void set_phase(std::uint32_t next, int wake);

  const Collective& what_;
  std::size_t group_;
  bool is_local_;
  std::vector<Member> members_;
  std::vector<int> local_;  // for each position of the group the place in `members_`
  Work work_;
  std::uint64_t visits_ = 0;
  alignas(kSharingBytes) std::atomic<std::uint32_t> arrived_{0};
  alignas(kSharingBytes) Word phase_{0};
  std::atomic<int> sleepers_{0};
  alignas(kSharingBytes) std::atomic<std::int64_t> next_{0};
  alignas(kSharingBytes) std::atomic<std::int64_t> left_{0};
};

}  // namespace stablexla
