// A block: its warps in a changing order until all have ended, barriers, and what each warp knows of the others.
#include <algorithm>
#include <numeric>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "async_copies.h"
#include "checks.h"
#include "machine.h"
#include "spaces.h"
#include "warpgroup.h"

namespace simulator {

namespace cuda = stablexla::cuda;

namespace {

std::uint32_t special(const std::string& name, const Block& b, const Warp& w, int lane) {
  const Launch& l = *b.launch;
  auto t = std::uint32_t(w.thread(lane));
  int axis = name.back() - 'x';
  std::string head = name.substr(0, name.find('.'));
  if (head == "%tid") return axis == 0 ? t % l.block[0] : axis == 1 ? t / l.block[0] % l.block[1] : t / l.block[0] / l.block[1];
  if (head == "%ntid") return l.block[axis];
  if (head == "%ctaid") return b.place[axis];
  if (head == "%nctaid") return l.grid[axis];
  std::uint32_t self = 1u << lane;
  if (name == "%laneid") return std::uint32_t(lane);
  if (name == "%warpid") return std::uint32_t(w.index);
  if (name == "%nwarpid") return std::uint32_t(b.warps.size());
  if (name == "%smid") return b.number % 4;
  if (name == "%nsmid") return 4;
  if (name == "%lanemask_eq") return self;
  if (name == "%lanemask_lt") return self - 1;
  if (name == "%lanemask_le") return self | (self - 1);
  if (name == "%lanemask_gt") return ~(self | (self - 1));
  if (name == "%lanemask_ge") return ~(self - 1);
  if (name == "%dynamic_smem_size") return l.dynamic_shared;
  if (name == "%total_smem_size") return std::uint32_t(b.shared.size());
  return l.number;  // %gridid
}

}  // namespace

Block::Block(Launch& owner, std::uint32_t n) : launch(&owner), number(n), random(owner.seed * 7919 + n) {
  const Function& f = *owner.function;
  place[0] = n % owner.grid[0];
  place[1] = n / owner.grid[0] % owner.grid[1];
  place[2] = n / owner.grid[0] / owner.grid[1];
  std::int64_t bytes = kReservedShared + f.static_shared;
  if (owner.dynamic_shared) bytes = align_up(bytes, f.dynamic_alignment) + owner.dynamic_shared;
  shared.assign(std::size_t(bytes), 0xcb);
  shadow = std::make_unique<SharedShadow>();
  shadow->shared = true;
  if (checks().races) shadow->reset(shared.size(), f.shared_grain);
  int threads = owner.threads(), count = (threads + kLanes - 1) / kLanes;
  local_bytes = f.local;
  local.assign(std::size_t(local_bytes) * std::size_t(count) * kLanes, 0xcb);
  warps.resize(std::size_t(count));
  known.assign(std::size_t(count) * std::size_t(count), 0);
  for (int index = 0; index < count; ++index) {
    Warp& w = warps[std::size_t(index)];
    w.block = this;
    w.index = index;
    int here = std::min(kLanes, threads - index * kLanes);
    w.existing = w.live = here == kLanes ? kAll : (1u << here) - 1;
    w.registers.assign(f.registers + 64 + 512, 0xcb);
    auto at = reinterpret_cast<std::uintptr_t>(w.registers.data());
    w.banks[0] = w.registers.data() + (64 - at % 64) % 64;
    w.banks[1] = const_cast<std::uint8_t*>(owner.module->constants.data());
    w.banks[2] = w.banks[0] + f.registers;  // what nobody reads
    Group all;
    all.pc = f.begin;
    all.mask = w.live;
    w.groups.push_back(all);
    for (const Special& s : f.specials) {
      for (int l = 0; l < kLanes; ++l) {
        std::uint64_t v = special(s.name, *this, w, l);
        std::memcpy(w.lanes<std::uint8_t>(s.slot) + l * s.slot.bytes, &v, s.slot.bytes);
      }
    }
  }
}

Block::~Block() = default;

bool Block::run(std::uint64_t budget) {
  std::vector<std::size_t> order(warps.size());
  std::iota(order.begin(), order.end(), 0);
  while (true) {
    if (launch->seed) std::shuffle(order.begin(), order.end(), random);
    bool progress = false, all = true;
    for (std::size_t n : order) {
      Warp& w = warps[n];
      if (w.finished()) continue;
      int slice = launch->seed ? 200 + int(random() % 4000) : 4001;
      progress |= w.run(slice, random);
      all &= w.finished();
      if (budget <= std::uint64_t(slice)) budget = 0;
      else budget -= std::uint64_t(slice);
    }
    if (all) break;
    if (!progress) stuck();
    if (!budget) return false;
  }
  for (Warp& w : warps) {
    launch->executed += w.executed;
    finish_copies(w);
    finish_products(w);
  }
  for (int id = 0; id < 16; ++id) {
    if (barriers[id].arrived) {
      fault(cuda::kLaunchFailed, "kernel " + launch->function->name + ", block " + std::to_string(number) +
                                     ": ends while barrier " + std::to_string(id) + " waits for more threads");
    }
  }
  return true;
}

void Block::stuck() {
  std::string text = "kernel " + launch->function->name + ", block " + std::to_string(number) + ": nothing can go on (divergent)";
  int told = 0;
  for (Warp& w : warps) {
    for (const Group& g : w.groups) {
      if (told++ == 8) fault(cuda::kLaunchFailed, text);
      w.now = &launch->module->code[std::size_t(g.pc)];
      std::string at = where(w, __builtin_ctz(g.mask));
      text += "\n  " + std::to_string(__builtin_popcount(g.mask)) + " threads wait " +
              (g.barrier >= 0 ? "at barrier " + std::to_string(g.barrier) : "for others of their warp") + ": " + at;
    }
    if (w.finished()) text += "\n  warp " + std::to_string(w.index) + " has ended";
  }
  fault(cuda::kLaunchFailed, text);
}

// flags: 1 goes on without waiting, 2 with a count, 4 aligned. value: 1 popc, 2 and, 3 or.
void Block::arrive(Warp& w, Group& group, const Instruction& i, Mask mask) {
  int lane = __builtin_ctz(mask);
  std::uint32_t id = w.lanes<std::uint32_t>(i.a)[lane];
  if (id > 15) fault(cuda::kIllegalInstruction, where(w, lane) + " no barrier " + std::to_string(id));
  Barrier& b = barriers[id];
  bool counted = i.flags & 2;
  int expected = counted ? int(w.lanes<std::uint32_t>(i.b)[lane]) : launch->threads();
  if (counted && expected % kLanes) fault(cuda::kIllegalInstruction, where(w, lane) + " a count that is no multiple of 32");
  if (b.arrived && b.expected != expected) {
    fault(cuda::kLaunchFailed, where(w, lane) + " " + std::to_string(expected) + " threads at barrier " + std::to_string(id) +
                                   ", others said " + std::to_string(b.expected));
  }
  b.expected = expected;
  b.arrived += !(i.flags & 4) ? __builtin_popcount(mask) : counted ? kLanes : __builtin_popcount(w.existing);
  if (i.value) {
    Mask p = w.predicate(i.c);
    if (i.flags & 8) p = ~p;
    b.popc += __builtin_popcount(p & mask);
    b.all &= (p & mask) == mask;
    b.any |= (p & mask) != 0;
  }
  b.warps.push_back(w.index);
  if (i.flags & 1) {
    ++group.pc;
  } else {
    group.barrier = int(id);
    b.waiting.push_back(w.index);
  }
  if (b.arrived > b.expected) fault(cuda::kLaunchFailed, where(w, lane) + " more threads at barrier " + std::to_string(id) + " than it is for");
  if (b.arrived == b.expected) release(int(id));
}

std::vector<std::uint32_t> Block::knowledge(int warp) const {
  auto n = warps.size();
  std::vector<std::uint32_t> row(known.begin() + std::ptrdiff_t(std::size_t(warp) * n),
                                 known.begin() + std::ptrdiff_t(std::size_t(warp + 1) * n));
  row[std::size_t(warp)] = stamp;
  return row;
}

void Block::acquire(int warp, const std::vector<std::uint32_t>& what) {
  auto n = warps.size();
  for (std::size_t other = 0; other < n && other < what.size(); ++other) {
    std::uint32_t& mine = known[std::size_t(warp) * n + other];
    mine = std::max(mine, what[other]);
  }
}

void Block::release(int id) {
  Barrier& b = barriers[id];
  std::vector<std::uint32_t> joined(warps.size());
  for (int warp : b.warps) {
    auto row = knowledge(warp);
    for (std::size_t n = 0; n < joined.size(); ++n) joined[n] = std::max(joined[n], row[n]);
  }
  std::vector<std::uint32_t> fenced(warps.size());  // fences of those that have come count for all
  for (int warp : b.warps) {
    const auto& mine = warps[std::size_t(warp)].fenced;
    for (std::size_t n = 0; n < mine.size(); ++n) fenced[n] = std::max(fenced[n], mine[n]);
  }
  for (int warp : b.waiting) {
    acquire(warp, joined);
    warps[std::size_t(warp)].fenced = fenced;
    Warp& w = warps[std::size_t(warp)];
    w.synchronised = stamp;
    for (Group& g : w.groups) {
      if (g.barrier != id) continue;
      const Instruction& i = launch->module->code[std::size_t(g.pc)];
      if (i.value == 1) {
        std::uint32_t out[kLanes];
        std::fill_n(out, kLanes, std::uint32_t(b.popc));
        w.write(i.d, out, g.mask);
      } else if (i.value) {
        w.write_predicate(i.d, (i.value == 2 ? b.all : b.any) ? kAll : 0, g.mask);
      }
      g.barrier = -1;
      ++g.pc;
    }
  }
  if (b.expected == launch->threads() && b.waiting.size() >= warps.size()) whole_barrier = stamp;
  ++stamp;
  b = Barrier{};
}

void Launch::run() {
  std::uint32_t total = grid[0] * grid[1] * grid[2];
  std::vector<std::uint32_t> order(total);
  std::iota(order.begin(), order.end(), 0);
  if (seed) {
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  std::vector<std::unique_ptr<Block>> running;  // more than one only where one waits for another
  std::size_t next = 0;
  std::uint64_t turns = 0;
  while (next < order.size() || !running.empty()) {
    if (next < order.size()) running.push_back(std::make_unique<Block>(*this, order[next++]));
    for (std::size_t n = 0; n < running.size();) {
      if (running[n]->run(std::uint64_t(1) << 24)) {
        running.erase(running.begin() + std::ptrdiff_t(n));
      } else {
        ++n;
      }
    }
    if (next >= order.size() && !running.empty() && ++turns > limit) {
      fault(cuda::kLaunchTimeout, "kernel " + function->name + ": does not end");
    }
  }
}

}  // namespace simulator
