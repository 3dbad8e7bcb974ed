// What the lanes of a warp do together: shuffles, votes, matches, sums of all, barriers and fences.
#include <algorithm>

#include "checks.h"
#include "decode.h"
#include "machine.h"

namespace simulator {
namespace {

enum ShuffleMode { kUp, kDown, kBfly, kIdx };

void shuffle(Warp& w, const Instruction& i, Mask mask) {
  std::uint32_t abuf[kLanes], bbuf[kLanes], cbuf[kLanes], out[kLanes];
  const std::uint32_t *a = w.read<std::uint32_t>(i.a, abuf), *b = w.read<std::uint32_t>(i.b, bbuf);
  const std::uint32_t* c = w.read<std::uint32_t>(i.sources[0], cbuf);
  Mask valid = 0;
  std::copy(a, a + kLanes, out);
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    int by = int(b[l] & 31), clamp = int(c[l] & 31), segment = int(c[l] >> 8 & 31);
    int most = (l & segment) | (clamp & ~segment), least = l & segment;
    int from = i.value == kUp ? l - by : i.value == kDown ? l + by : i.value == kBfly ? l ^ by : least | (by & ~segment);
    bool ok = i.value == kUp ? from >= most : from <= most;
    if (!ok) from = l;
    if (!(mask >> from & 1)) {
      fault(715, where(w, l) + " takes from lane " + std::to_string(from) + ", which does not take part");
    }
    valid |= Mask(ok) << l;
    out[l] = a[from];
  }
  w.write(i.d, out, mask);
  if (!i.more.empty()) w.write_predicate(i.more[0], valid, mask);
}

void members(Decode& d, std::size_t n) {
  d.i.kind = Kind::kMembers;
  d.i.c = d.source(n, Type::kU32);
}

void shfl(Decode& d) {
  d.expect("sync");
  d.i.value = d.take("up") ? kUp : d.take("down") ? kDown : d.take("bfly") ? kBfly : kIdx;
  if (d.i.value == kIdx) d.expect("idx");
  d.expect("b32");
  d.finish(5);
  const Operand& to = d.operand(0);
  d.i.run = &shuffle;
  d.i.d = d.destination(to.kind == Operand::kPair ? to.parts[0] : to, 4, false);
  if (to.kind == Operand::kPair) d.i.more = {d.predicate_destination(to.parts[1])};
  d.i.a = d.source(1, Type::kB32);
  d.i.b = d.source(2, Type::kB32);
  d.i.sources = {d.source(3, Type::kB32)};
  members(d, 4);
}

enum VoteMode { kAllOf, kAnyOf, kUni, kBallot };

void vote_now(Warp& w, const Instruction& i, Mask mask) {
  Mask p = w.predicate(i.a);
  if (i.flags & 1) p = ~p;
  p &= mask;
  if (i.value == kBallot) {
    std::uint32_t out[kLanes];
    std::fill_n(out, kLanes, p);
    return w.write(i.d, out, mask);
  }
  bool yes = i.value == kAllOf ? p == mask : i.value == kAnyOf ? p != 0 : p == 0 || p == mask;
  w.write_predicate(i.d, yes ? kAll : 0, mask);
}

void vote(Decode& d) {
  d.expect("sync");
  d.i.value = d.take("all") ? kAllOf : d.take("any") ? kAnyOf : d.take("uni") ? kUni : kBallot;
  if (d.i.value == kBallot) d.expect("ballot");
  d.expect(d.i.value == kBallot ? "b32" : "pred");
  d.finish(3);
  d.i.run = &vote_now;
  d.i.d = d.i.value == kBallot ? d.destination(0, 4) : d.predicate_destination(d.operand(0));
  bool negated = false;
  d.i.a = d.predicate_source(d.operand(1), negated);
  d.i.flags = negated;
  members(d, 2);
}

template <class T>
void match_now(Warp& w, const Instruction& i, Mask mask) {
  T buffer[kLanes];
  const T* a = w.read<T>(i.a, buffer);
  std::uint32_t out[kLanes] = {};
  Mask same = 0;
  for (int l = 0; l < kLanes; ++l) {
    for (int m = 0; m < kLanes; ++m) out[l] |= Mask((mask >> m & 1) && a[m] == a[l]) << m;
  }
  if (i.value) {
    bool all = out[__builtin_ctz(mask)] == mask;
    same = all ? kAll : 0;
    for (auto& o : out) o = all ? mask : 0;
    if (!i.more.empty()) w.write_predicate(i.more[0], same, mask);
  }
  w.write(i.d, out, mask);
}

void match(Decode& d) {
  d.i.value = d.take("all");
  if (!d.i.value) d.expect("any");
  d.expect("sync");
  Type t = d.type_of({Type::kB32, Type::kB64});
  d.finish(3);
  const Operand& to = d.operand(0);
  bool pair = to.kind == Operand::kPair;
  if (pair && !d.i.value) d.refuse("a predicate is for match.all");
  d.i.run = t == Type::kB32 ? &match_now<std::uint32_t> : &match_now<std::uint64_t>;
  d.i.d = d.destination(pair ? to.parts[0] : to, 4, false);
  if (pair) d.i.more = {d.predicate_destination(to.parts[1])};
  d.i.a = d.source(1, t);
  members(d, 2);
}

enum Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <class T>
void redux_now(Warp& w, const Instruction& i, Mask mask) {
  T buffer[kLanes], out[kLanes];
  const T* a = w.read<T>(i.a, buffer);
  T all = a[__builtin_ctz(mask)];
  for (int l = __builtin_ctz(mask) + 1; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    switch (i.value) {
      case kAdd: all = T(std::uint32_t(all) + std::uint32_t(a[l])); break;
      case kMin: all = std::min(all, a[l]); break;
      case kMax: all = std::max(all, a[l]); break;
      case kAnd: all &= a[l]; break;
      case kOr: all |= a[l]; break;
      default: all ^= a[l];
    }
  }
  std::fill_n(out, kLanes, all);
  w.write(i.d, out, mask);
}

void redux(Decode& d) {
  d.expect("sync");
  static const char* kWords[] = {"add", "min", "max", "and", "or", "xor"};
  d.i.value = -1;
  for (int n = 0; n < 6; ++n) {
    if (d.i.value < 0 && d.take(kWords[n])) d.i.value = n;
  }
  if (d.i.value < 0) d.refuse("this operation is not known");
  Type t = d.i.value >= kAnd ? d.type_of({Type::kB32}) : d.type_of({Type::kU32, Type::kS32});
  d.finish(3);
  d.i.run = t == Type::kS32 ? &redux_now<std::int32_t> : &redux_now<std::uint32_t>;
  d.i.d = d.destination(0, 4);
  d.i.a = d.source(1, t);
  members(d, 2);
}

void activemask(Decode& d) {
  d.expect("b32");
  d.finish(1);
  d.i.d = d.destination(0, 4);
  d.i.run = [](Warp& w, const Instruction& i, Mask mask) {
    std::uint32_t out[kLanes];
    std::fill_n(out, kLanes, mask);
    w.write(i.d, out, mask);
  };
}

void elect(Decode& d) {
  d.expect("sync");
  d.finish(2);
  const Operand& to = d.operand(0);
  if (to.kind != Operand::kPair) d.refuse("a register and a predicate are wanted");
  d.i.d = d.destination(to.parts[0], 4, false);
  d.i.more = {d.predicate_destination(to.parts[1])};
  members(d, 1);
  d.i.run = [](Warp& w, const Instruction& i, Mask mask) {
    std::uint32_t out[kLanes];
    std::fill_n(out, kLanes, std::uint32_t(__builtin_ctz(mask)));
    w.write(i.d, out, mask);
    w.write_predicate(i.more[0], mask & (0 - mask), mask);
  };
}

}  // namespace

// Orders what the members did before with what they do after.
void warp_barrier(Decode& d) {
  d.expect("warp");
  d.expect("sync");
  d.finish(1);
  members(d, 0);
  d.i.run = [](Warp& w, const Instruction&, Mask mask) {
    if ((mask & w.live) != w.live) return;  // of a part of the warp: no order is noted
    w.synchronised = w.block->stamp++;
  };
}

// Of memory: what others released is known, what was done is released. Of the async proxy: noted for warpgroups' products.
void fence(Decode& d) {
  bool async = d.take("proxy"), wide = true;
  if (async) {
    if (!d.take("async")) d.expect("async::generic");
    if (!d.take("shared::cta")) d.take("global");
  } else if (d.statement().words[0] == "membar") {
    wide = !d.take("cta");
    if (wide && !d.take("gl")) d.expect("sys");
  } else {
    if (!d.take("sc")) d.take("acq_rel");
    wide = !d.take("cta");
    if (wide && !d.take("gpu")) d.expect("sys");
  }
  d.finish(0);
  if (!async) {
    d.i.run = [](Warp& w, const Instruction& i, Mask) {
      if (i.value) fence_all(w);
    };
    d.i.value = wide;
    return;
  }
  d.i.run = [](Warp& w, const Instruction&, Mask mask) {
    ++w.block->stamp;
    for (int l = 0; l < kLanes; ++l) {
      if (mask >> l & 1) w.proxy_fence[l] = w.block->stamp;
    }
  };
}

void add_warp(Table& t) {
  t["shfl"] = shfl;
  t["vote"] = vote;
  t["match"] = match;
  t["redux"] = redux;
  t["activemask"] = activemask;
  t["elect"] = elect;
  t["fence"] = fence;
  t["membar"] = fence;
}

}  // namespace simulator
