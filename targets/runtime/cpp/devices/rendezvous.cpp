#include "rendezvous.h"

#include <algorithm>

namespace stablexla {

Meeting::Meeting(const Collective& what, std::size_t group, const Placement& where)
    : what_(what), group_(group), work_(what, what.groups[group]) {
  for (int device : what.groups[group]) {
    const bool here = where.is_here(device);
    local_.push_back(here ? static_cast<int>(members_.size()) : -1);
    if (here) members_.push_back({device, nullptr, nullptr, nullptr});
  }
  is_local_ = members_.size() == what.groups[group].size();
}

bool Meeting::arrive(int position, void** outputs, void** inputs, Combine combine) {
  Member& member = members_[static_cast<std::size_t>(local_[static_cast<std::size_t>(position)])];
  member.outputs = outputs;
  member.inputs = inputs;
  member.combine = combine;
  return arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_.size();
}

bool Meeting::withdraw() {
  const std::uint32_t before = arrived_.fetch_or(kWithdrawn, std::memory_order_acq_rel);
  return (before & ~kWithdrawn) < members_.size();
}

void Meeting::complete(int cores) {
  const std::int64_t chunks = work_.chunks();
  const int others = static_cast<int>(members_.size()) - 1;
  if (chunks < 2 || others == 0 || work_.bytes() <= kAlone) {
    for (std::int64_t i = 0; i < chunks; ++i) work_.run(i, members_.data());
    end();
    return;
  }
  next_.store(0, std::memory_order_relaxed);
  left_.store(chunks, std::memory_order_relaxed);
  set_phase(1, std::min<int>({others, cores - 1, static_cast<int>(chunks) - 1}));
  help();
}

void Meeting::help() {
  const std::int64_t chunks = work_.chunks();
  for (;;) {
    const std::int64_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    if (mine >= chunks) return;
    work_.run(mine, members_.data());
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) end();
  }
}

void Meeting::end() {
  ++visits_;
  arrived_.fetch_and(kWithdrawn, std::memory_order_relaxed);
  set_phase(is_open(phase()) ? 1 : 2, 1 << 20);
}

void Meeting::set_phase(std::uint32_t step, int wake) {
  std::uint32_t now = phase_.load(std::memory_order_relaxed);
  while (!phase_.compare_exchange_weak(now, (now & kStopped) | ((now + step) & ~kStopped))) {
  }
  if (wake > 0 && sleepers_.load() > 0) futex_wake(phase_, wake);
}

void Meeting::stop() {
  phase_.fetch_or(kStopped);
  futex_wake(phase_, 1 << 20);
}

}  // namespace stablexla
