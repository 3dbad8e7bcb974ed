#include "transport.h"

#include <algorithm>
#include <mutex>
#include <tuple>

namespace stablexla {
namespace {

std::atomic<Transport*> the_transport{nullptr};

}  // namespace

const Placement& placement_of(const std::vector<int>& processes, int rank, std::uint64_t key) {
  static std::mutex mutex;
  static std::map<std::tuple<std::vector<int>, int, std::uint64_t>, Placement> known;
  std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({processes, rank, key});
  Placement& made = found->second;
  if (!is_new) return made;
  made.processes = processes;
  made.key = key;
  for (std::size_t device = 0; device < processes.size(); ++device) {
    const int process = processes[device];
    made.positions.push_back(process == rank ? static_cast<int>(made.here.size()) : -1);
    (process == rank ? made.here : made.elsewhere).push_back(static_cast<int>(device));
    if (std::find(made.ranks.begin(), made.ranks.end(), process) == made.ranks.end()) made.ranks.push_back(process);
  }
  return made;
}

Deadline deadline_after(double seconds) {
  if (seconds < 0 || seconds > 1e9) return Deadline::max();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Transport* transport() { return the_transport.load(std::memory_order_acquire); }
void set_transport(Transport* transport) { the_transport.store(transport, std::memory_order_release); }

}  // namespace stablexla
