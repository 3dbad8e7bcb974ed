// ld and st of all spaces, alone and as vectors.
#include "checks.h"
#include "decode.h"
#include "lanes.h"
#include "spaces.h"

namespace simulator {

void lane_addresses(Warp& w, const Instruction& i, std::uint64_t* out) {
  if (i.a.bytes == 4) {
    const std::uint32_t* a = w.lanes<std::uint32_t>(i.a);
    for (int l = 0; l < kLanes; ++l) out[l] = std::uint32_t(a[l] + std::uint32_t(i.offset));
  } else {
    const std::uint64_t* a = w.lanes<std::uint64_t>(i.a);
    for (int l = 0; l < kLanes; ++l) out[l] = a[l] + std::uint64_t(i.offset);
  }
}

namespace {

constexpr std::uint8_t kStrong = 1, kNonCoherent = 2, kOrdered = 4;

// The parts of a vector that somebody reads: of the others it does not matter whether they were ever written.
template <class T>
void load_some(Warp& w, const Instruction& i, int lane, std::uint64_t address, Access kind, T (*out)[kLanes]) {
  if (address % (i.more.size() * sizeof(T))) reach(w, lane, i.space, address, int(i.more.size() * sizeof(T)), kind);
  for (std::size_t e = 0; e < i.more.size(); ++e) {
    if (!(i.value >> e & 1)) continue;
    std::memcpy(&out[e][lane], reach(w, lane, i.space, address + e * sizeof(T), int(sizeof(T)), kind), sizeof(T));
  }
}

template <class T>
void load(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  T out[8][kLanes];
  std::size_t n = i.more.size();
  int bytes = int(n * sizeof(T));
  Access kind = i.flags & kNonCoherent ? Access::kReadOnly : i.flags & kStrong ? Access::kStrongRead : Access::kRead;
  for (Mask rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    if (i.value) {
      load_some(w, i, l, address[l], kind, out);
      continue;
    }
    const std::uint8_t* from = reach(w, l, i.space, address[l], bytes, kind);
    for (std::size_t e = 0; e < n; ++e) std::memcpy(&out[e][l], from + e * sizeof(T), sizeof(T));
    if (i.flags & kStrong && i.space != Space::kShared) meet(w, address[l], i.flags & kOrdered, false);
  }
  for (std::size_t e = 0; e < n; ++e) w.write(i.more[e], out[e], mask);
}

template <class T>
void store(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  T buffers[8][kLanes];
  const T* in[8];
  std::size_t n = i.sources.size();
  for (std::size_t e = 0; e < n; ++e) in[e] = w.read<T>(i.sources[e], buffers[e]);
  int bytes = int(n * sizeof(T));
  for (Mask rest = mask; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    Access kind = i.flags & kStrong ? Access::kStrongWrite : Access::kWrite;
    std::uint8_t* to = reach(w, l, i.space, address[l], bytes, kind);
    for (std::size_t e = 0; e < n; ++e) std::memcpy(to + e * sizeof(T), &in[e][l], sizeof(T));
    if (i.flags & kStrong && i.space != Space::kShared) meet(w, address[l], false, i.flags & kOrdered);
  }
}

Space space_word(Decode& d) {
  if (d.take("global")) return Space::kGlobal;
  if (d.take("shared") || d.take("shared::cta")) return Space::kShared;
  if (d.take("local")) return Space::kLocal;
  if (d.take("param") || d.take("param::entry")) return Space::kParam;
  if (d.take("const")) return Space::kConstant;
  return Space::kGeneric;
}

// What does not change the meaning here: caching.
void caching(Decode& d) {
  static const std::string kWords =
      " ca cg cs lu cv wb wt L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate "
      "L2::64B L2::128B L2::256B L2::evict_first L2::evict_last L2::evict_normal ";
  while (d.more() && kWords.find(" " + d.peek() + " ") != std::string::npos) d.word();
}

std::size_t rest_of_form(Decode& d, bool load);

// The parts of ld and st before the type: weak, relaxed.gpu, a space, caching, v4.
std::size_t form(Decode& d, bool load) {
  if (d.take("volatile")) {
    d.i.flags |= kStrong;
  } else if (!d.take("weak")) {
    bool ordered = d.take(load ? "acquire" : "release");
    if (!ordered && !d.take("relaxed")) return rest_of_form(d, load);
    d.i.flags |= std::uint8_t(kStrong | (ordered ? kOrdered : 0));
    if (!d.take("gpu") && !d.take("cta") && !d.take("sys")) d.refuse("a scope is wanted");
  }
  return rest_of_form(d, load);
}

std::size_t rest_of_form(Decode& d, bool load) {
  d.i.space = space_word(d);
  caching(d);
  if (load && d.take("nc")) {
    if (d.i.space != Space::kGlobal) d.refuse("nc is for global memory");
    d.i.flags |= kNonCoherent;
  }
  caching(d);
  std::size_t n = d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1;
  d.i.type = d.type();
  if (d.i.type == Type::kPred || d.i.type == Type::kB128) d.refuse("not for this type");
  int bytes = bytes_of(d.i.type) * int(n);
  if (bytes > (d.function().module.chip >= 100 ? 32 : 16)) d.refuse("a vector of more than 16 bytes");
  d.finish(2);
  return n;
}

template <bool is_load>
Run by_bytes(Type t) {
#define PICK(T) (is_load ? &load<T> : &store<T>)
  switch (bytes_of(t)) {
    case 1: return t == Type::kS8 ? PICK(std::int8_t) : PICK(std::uint8_t);
    case 2: return t == Type::kS16 ? PICK(std::int16_t) : PICK(std::uint16_t);
    case 4: return t == Type::kS32 ? PICK(std::int32_t) : PICK(std::uint32_t);
    default: return PICK(std::uint64_t);
  }
#undef PICK
}

void ld(Decode& d) {
  std::size_t n = form(d, true);
  std::vector<Operand> single;
  const auto& parts = d.parts(0, single);
  if (parts.size() != n) d.refuse(std::to_string(parts.size()) + " registers for " + std::to_string(n));
  for (const Operand& o : parts) d.i.more.push_back(d.destination(o, bytes_of(d.i.type), !is_float(d.i.type)));
  d.address(1, d.i.space);
  d.i.run = by_bytes<true>(d.i.type);
}

void st(Decode& d) {
  std::size_t n = form(d, false);
  if (d.i.space == Space::kParam || d.i.space == Space::kConstant) d.refuse("this space is not written");
  std::vector<Operand> single;
  const auto& parts = d.parts(1, single);
  if (parts.size() != n) d.refuse(std::to_string(parts.size()) + " registers for " + std::to_string(n));
  for (const Operand& o : parts) d.i.sources.push_back(d.source(o, d.i.type, !is_float(d.i.type)));
  d.address(0, d.i.space);
  d.i.run = by_bytes<false>(d.i.type);
}

}  // namespace

void add_memory(Table& t) {
  t["ld"] = ld;
  t["st"] = st;
  auto nothing = [](Decode& d) {  // hints
    while (d.more()) d.word();
    d.i.run = [](Warp&, const Instruction&, Mask) {};
  };
  t["prefetch"] = nothing;
  t["prefetchu"] = nothing;
  t["applypriority"] = nothing;
}

}  // namespace simulator
