// cp.async: what is copied into shared memory arrives when its group is waited for.
#include "async_copies.h"

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "checks.h"
#include "decode.h"

namespace simulator {

void lane_addresses(Warp& w, const Instruction& i, std::uint64_t* out);

namespace {

AsyncCopies& copies_of(Warp& w) {
  if (!w.copies) w.copies = std::make_unique<AsyncCopies>();
  return *w.copies;
}

void in_flight(Warp& w, const AsyncCopy& c, int change) {
  if (!checks().races) return;
  Shadow& shadow = *w.block->shadow;
  for (std::size_t n = c.to >> shadow.shift; n <= (c.to + std::uint64_t(c.bytes) - 1) >> shadow.shift; ++n) {
    shadow.cells[n].in_flight = std::uint16_t(shadow.cells[n].in_flight + change);
  }
}

void read_source(Warp& w, int lane, const AsyncCopy& c, std::uint8_t* to) {
  for (int at = 0, part = 0; at < c.filled; at += part) {
    part = c.filled - at >= 4 ? 4 : c.filled - at >= 2 ? 2 : 1;
    const std::uint8_t* from = reach(w, lane, Space::kGlobal, c.from + std::uint64_t(at), part, Access::kRead);
    if (to) std::memcpy(to + at, from, std::size_t(part));
  }
}

// Both ends are looked at when the copy is asked for and when it arrives.
void start(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t from[kLanes];
  lane_addresses(w, i, from);
  std::uint32_t size_buffer[kLanes];
  const std::uint32_t* size = i.flags & 1 ? w.read<std::uint32_t>(i.b, size_buffer) : nullptr;
  const std::uint8_t* to = w.lanes<std::uint8_t>(i.d);
  int bytes = int(i.value);
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    AsyncCopy c;
    std::memcpy(&c.to, to + l * i.d.bytes, i.d.bytes);
    c.to += std::uint64_t(i.target);
    c.from = from[l];
    c.bytes = bytes;
    c.filled = size ? int(size[l]) : bytes;
    if (i.flags & 2 && w.predicate(i.c) >> l & 1) c.filled = 0;
    if (c.filled > bytes || c.filled < 0) fault(stablexla::cuda::kIllegalInstruction, where(w, l) + " a source of " + std::to_string(c.filled) + " bytes");
    if (c.from % std::uint64_t(bytes)) fault(stablexla::cuda::kMisalignedAddress, where(w, l) + " copies from a place that is not aligned");
    reach_shared(w, l, c.to, bytes, Access::kWrite);
    read_source(w, l, c, nullptr);
    in_flight(w, c, 1);
    copies_of(w).open[l].push_back(c);
  }
}

void arrive(Warp& w, int lane, const std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& c : group) {
    in_flight(w, c, -1);
    std::uint8_t* to = reach_shared(w, lane, c.to, c.bytes, Access::kWrite);
    std::memset(to, 0, std::size_t(c.bytes));
    read_source(w, lane, c, to);
  }
}

void commit(Warp& w, const Instruction&, Mask mask) {
  AsyncCopies& all = copies_of(w);
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    all.groups[l].push_back(std::move(all.open[l]));
    all.open[l].clear();
  }
}

// All but the last `value` groups; value -1: also what is in no group.
void wait(Warp& w, const Instruction& i, Mask mask) {
  AsyncCopies& all = copies_of(w);
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    auto keep = std::size_t(std::max<std::int64_t>(i.value, 0));
    while (all.groups[l].size() > keep) {
      arrive(w, l, all.groups[l].front());
      all.groups[l].pop_front();
    }
    if (i.value >= 0) continue;
    arrive(w, l, all.open[l]);
    all.open[l].clear();
  }
}

// cp.async.cg.shared.global{.L2::128B} [to], [from], 16{, size}
void copy(Decode& d) {
  bool cg = d.take("cg");
  if (!cg) d.expect("ca");
  if (!d.take("shared::cta")) d.expect("shared");
  d.expect("global");
  if (d.take("L2::cache_hint")) d.refuse("a hint about caching is not simulated");
  if (!d.take("L2::64B") && !d.take("L2::128B")) d.take("L2::256B");
  d.finish_between(3, 4);
  d.i.value = d.integer(2);
  if (d.i.value != 16 && (cg || (d.i.value != 4 && d.i.value != 8))) d.refuse(std::to_string(d.i.value) + " bytes");
  d.address(0, Space::kShared);
  d.i.d = d.i.a;
  d.i.target = int(d.i.offset);
  d.address(1, Space::kGlobal);
  if (d.count() == 4) {
    const Operand& last = d.operand(3);
    bool predicate = last.kind == Operand::kRegister && d.function().registers[std::size_t(last.reg)].bytes == 0;
    d.i.flags = predicate ? 2 : 1;
    (predicate ? d.i.c : d.i.b) = predicate ? d.predicate_source(last) : d.source(3, Type::kU32);
  }
  d.i.type = Type::kB32;  // the smallest part
  d.i.run = &start;
}

void cp(Decode& d) {
  d.expect("async");
  if (d.take("commit_group")) {
    d.finish(0);
    d.i.run = &commit;
  } else if (d.take("wait_group")) {
    d.finish(1);
    d.i.value = d.integer(0);
    d.i.run = &wait;
  } else if (d.take("wait_all")) {
    d.finish(0);
    d.i.value = -1;
    d.i.run = &wait;
  } else {
    copy(d);
  }
}

}  // namespace

void finish_copies(Warp& w) {
  if (!w.copies) return;
  for (int l = 0; l < kLanes; ++l) {
    std::size_t left = w.copies->open[l].size();
    for (const auto& group : w.copies->groups[l]) left += group.size();
    if (left) fault(stablexla::cuda::kLaunchFailed, where(w, l) + " ends with asynchronous copies that it has not waited for");
  }
}

void add_async_copies(Table& t) { t["cp"] = cp; }

}  // namespace simulator
