// A warp's turn: groups of lanes that are at the same place go on together, the one that is furthest behind first.
#include <climits>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "async_copies.h"
#include "machine.h"
#include "warpgroup.h"

namespace simulator {

namespace cuda = stablexla::cuda;

Warp::Warp() = default;
Warp::Warp(Warp&&) noexcept = default;
Warp::~Warp() = default;

void fault(int code, const std::string& what) { throw Fault(code, what); }

std::string where(const Warp& w, int lane) {
  const Block& b = *w.block;
  std::string text = "kernel " + b.launch->function->name + ", block " + std::to_string(b.place[0]);
  if (b.launch->grid[1] * b.launch->grid[2] > 1) text += "," + std::to_string(b.place[1]) + "," + std::to_string(b.place[2]);
  text += ", thread " + std::to_string(w.thread(lane));
  if (w.now) {
    std::string line = b.launch->module->lines.at(std::size_t(w.now->line - 1));
    line.erase(0, line.find_first_not_of(" \t"));
    text += ", line " + std::to_string(w.now->line) + " (" + line + ")";
  }
  return text + ":";
}

void Warp::narrowed(const Slot& s, void* buffer, std::size_t bytes) {
  const std::uint8_t* from = lanes<std::uint8_t>(s);
  for (std::size_t l = 0; l < kLanes; ++l) std::memcpy(static_cast<char*>(buffer) + l * bytes, from + l * s.bytes, bytes);
}

void Warp::widened(const Slot& s, const void* values, std::size_t bytes, Mask mask, bool sign) {
  if (s.bank == 2) return;
  std::uint8_t* to = lanes<std::uint8_t>(s);
  const auto* from = static_cast<const std::uint8_t*>(values);
  for (std::size_t l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    bool ones = sign && from[l * bytes + bytes - 1] & 128;
    std::memset(to + l * s.bytes, ones ? 255 : 0, s.bytes);
    std::memcpy(to + l * s.bytes, from + l * bytes, bytes);
  }
}

int Warp::pick(bool any, std::mt19937& random) const {
  int best = -1, seen = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].parked || groups[g].barrier >= 0) continue;
    ++seen;
    bool better = best < 0 || (any ? random() % unsigned(seen) == 0 : groups[g].pc < groups[std::size_t(best)].pc);
    if (better) best = int(g);
  }
  return best;
}

// Groups that have come to the same place go on as one.
void Warp::merge() {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t h = groups.size(); h-- > g + 1;) {
      Group &a = groups[g], &b = groups[h];
      if (a.pc != b.pc || a.barrier >= 0 || b.barrier >= 0 || a.returns != b.returns) continue;
      a.mask |= b.mask;
      a.parked = false;
      groups.erase(groups.begin() + std::ptrdiff_t(h));
    }
  }
}

// Whether all the lanes have come that an instruction is for.
bool Warp::gathered(Group& group, const Instruction& i, Mask mask) {
  Mask wanted = existing;
  int lane = __builtin_ctz(group.mask);
  if (i.kind == Kind::kMembers) {
    if (!mask) return true;
    lane = __builtin_ctz(mask);
    const std::uint32_t* members = lanes<std::uint32_t>(i.c);
    wanted = members[lane] & existing;
    for (int l = 0; l < kLanes; ++l) {
      if (!(mask >> l & 1)) continue;
      if (members[l] != members[lane]) fault(cuda::kIllegalInstruction, where(*this, l) + " other members than thread " + std::to_string(thread(lane)));
      if (!(members[l] >> l & 1)) fault(cuda::kIllegalInstruction, where(*this, l) + " the thread is not among the members");
    }
  }
  if (wanted & ~live) {
    fault(cuda::kLaunchFailed, where(*this, lane) + " waits for thread " +
                                   std::to_string(thread(__builtin_ctz(wanted & ~live))) + ", which has ended (divergent)");
  }
  Mask come = i.kind == Kind::kMembers ? mask : group.mask;
  if ((come & wanted) != wanted) {
    group.parked = true;
    return false;
  }
  if (i.kind != Kind::kMembers && mask && mask != group.mask) {
    fault(cuda::kLaunchFailed, where(*this, __builtin_ctz(group.mask & ~mask)) + " the guard keeps it from an instruction for all threads of a warp");
  }
  return true;
}

// Branches and ends. Whether the group goes on without looking at the others.
bool Warp::control(std::size_t& g, const Instruction& i, Mask mask) {
  Group& group = groups[g];
  switch (i.kind) {
    case Kind::kBranch: {
      if (mask == group.mask) {
        group.pc = i.target;
        return true;
      }
      if (!mask) {
        ++group.pc;
        return true;
      }
      Group other = group;
      other.mask = mask;
      other.pc = i.target;
      group.mask &= ~mask;
      ++group.pc;
      groups.push_back(other);
      return false;
    }
    case Kind::kTable: {
      const std::uint32_t* index = lanes<std::uint32_t>(i.a);
      Group all = group;
      group.mask &= ~mask;
      ++group.pc;
      for (Mask rest = mask; rest;) {
        std::uint32_t n = index[__builtin_ctz(rest)];
        if (n >= i.targets.size()) fault(cuda::kIllegalInstruction, where(*this, __builtin_ctz(rest)) + " no target " + std::to_string(n));
        Mask same = 0;
        for (int l = 0; l < kLanes; ++l) same |= Mask(index[l] == n) << l;
        Group next = all;
        next.mask = rest & same;
        next.pc = i.targets[n];
        groups.push_back(next);
        rest &= ~same;
      }
      if (!groups[g].mask) groups.erase(groups.begin() + std::ptrdiff_t(g));
      return false;
    }
    case Kind::kExit:
      live &= ~mask;
      group.mask &= ~mask;
      ++group.pc;
      if (!group.mask) groups.erase(groups.begin() + std::ptrdiff_t(g));
      return false;
    case Kind::kBarrier:
      if (i.flags & 4 && !gathered(group, i, mask)) return false;
      if (!mask) {
        ++group.pc;
        return true;
      }
      if (mask != group.mask) {
        Group other = group;
        other.mask = group.mask & ~mask;
        ++other.pc;
        group.mask = mask;
        block->arrive(*this, groups[g], i, mask);
        groups.push_back(other);
        return false;
      }
      block->arrive(*this, group, i, mask);
      return false;
    default:
      fault(cuda::kIllegalInstruction, where(*this, __builtin_ctz(group.mask)) + " not simulated");
  }
}

bool Warp::run(int slice, std::mt19937& random) {
  bool progress = false, any = slice % 4 == 0;
  const Instruction* code = block->launch->module->code.data();
  while (slice > 0) {
    merge();
    int picked = pick(any, random);
    if (picked < 0) break;
    any = false;
    auto g = std::size_t(picked);
    int others = INT_MAX;
    for (std::size_t n = 0; n < groups.size(); ++n) {
      if (n != g && groups[n].barrier < 0 && groups[n].pc > groups[g].pc) others = std::min(others, groups[n].pc);
    }
    while (slice-- > 0) {
      Group& group = groups[g];
      const Instruction& i = code[group.pc];
      Mask mask = group.mask;
      now = &i;
      if (i.guarded) mask &= i.guard_negated ? ~predicate(i.guard) : predicate(i.guard);
      executed += std::uint64_t(__builtin_popcount(mask));
      if (i.kind == Kind::kPlain) {
        if (mask) i.run(*this, i, mask);
        ++group.pc;
        progress = true;
      } else if (i.kind == Kind::kAligned || i.kind == Kind::kMembers) {
        if (!gathered(group, i, mask)) break;
        if (mask) i.run(*this, i, mask);
        ++group.pc;
        progress = true;
      } else {
        bool alone = control(g, i, mask);
        if (g >= groups.size() || !groups[g].parked) progress = true;
        if (!alone) break;
      }
      if (groups[g].pc >= others) break;
    }
  }
  return progress;
}

}  // namespace simulator
