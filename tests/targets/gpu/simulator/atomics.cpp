// atom and red: operations on memory that no other thread comes between.
#include <algorithm>

#include "checks.h"
#include "decode.h"
#include "floats.h"
#include "machine.h"

namespace simulator {

void lane_addresses(Warp& w, const Instruction& i, std::uint64_t* out);

namespace {

enum Operation { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExch, kCas };

template <class T>
T whole(int operation, T old, T b, T c) {
  using U = std::make_unsigned_t<T>;
  switch (operation) {
    case kAdd: return T(U(old) + U(b));
    case kMin: return std::min(old, b);
    case kMax: return std::max(old, b);
    case kInc: return U(old) >= U(b) ? T(0) : T(old + 1);
    case kDec: return old == 0 || U(old) > U(b) ? b : T(old - 1);
    case kAnd: return old & b;
    case kOr: return old | b;
    case kXor: return old ^ b;
    case kExch: return b;
    default: return old == b ? c : old;
  }
}

float add_real(float a, float b) { return canonical(a + b); }
double add_real(double a, double b) { return a + b; }

template <class S>
std::uint16_t small(int operation, std::uint16_t old, std::uint16_t b) {
  double x = S{old}.value(), y = S{b}.value();
  if (operation == kAdd) return S::from(x + y).bits;
  if (x != x) return b;
  if (y != y) return old;
  return (operation == kMin) == (x < y) ? old : b;
}

template <class T>
T apply(Type t, int operation, T old, T b, T c) {
  if (t == Type::kF32) {
    if constexpr (sizeof(T) == 4) return as_bits<T>(add_real(as_bits<float>(old), as_bits<float>(b)));
  } else if (t == Type::kF64) {
    if constexpr (sizeof(T) == 8) return as_bits<T>(add_real(as_bits<double>(old), as_bits<double>(b)));
  } else if (t == Type::kF16 || t == Type::kF16x2 || t == Type::kBF16 || t == Type::kBF16x2) {
    bool half = t == Type::kF16 || t == Type::kF16x2;
    T all = 0;
    for (std::size_t p = 0; p < sizeof(T) / 2; ++p) {
      auto o = std::uint16_t(old >> (16 * p)), v = std::uint16_t(b >> (16 * p));
      all = T(all | T(half ? small<Half>(operation, o, v) : small<BFloat>(operation, o, v)) << (16 * p));
    }
    return all;
  }
  return whole(operation, old, b, c);
}

template <class T>
void atomic(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  T bbuf[kLanes], cbuf[kLanes] = {}, out[kLanes] = {};
  const T* b = w.read<T>(i.b, bbuf);
  const T* c = i.value == kCas ? w.read<T>(i.c, cbuf) : cbuf;
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    std::uint8_t* at = reach(w, l, i.space, address[l], int(sizeof(T)), Access::kAtomic);
    std::memcpy(&out[l], at, sizeof(T));
    T next = apply<T>(i.type, int(i.value), out[l], b[l], c[l]);
    std::memcpy(at, &next, sizeof(T));
    if (i.space != Space::kShared) meet(w, address[l], i.flags & 2, i.flags & 4);
  }
  if (!(i.flags & 1)) w.write(i.d, out, mask);
}

void decode(Decode& d, bool reduce) {
  enum { kAcquire = 2, kRelease = 4 };
  int order = d.take("acquire") ? kAcquire : d.take("release") ? kRelease : d.take("acq_rel") ? kAcquire | kRelease : 0;
  if (!order) d.take("relaxed");
  if (!d.take("cta") && !d.take("gpu")) d.take("sys");
  Space space = d.take("global") ? Space::kGlobal : d.take("shared") || d.take("shared::cta") ? Space::kShared : Space::kGeneric;
  static const char* kWords[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"};
  d.i.value = -1;
  for (int n = 0; n < 10; ++n) {
    if (d.i.value < 0 && d.take(kWords[n])) d.i.value = n;
  }
  if (d.i.value < 0 || (reduce && d.i.value >= kExch)) d.refuse("this operation is not known");
  bool noftz = d.take("noftz");
  Type t = d.i.type = d.type();
  bool small = t == Type::kF16 || t == Type::kF16x2 || t == Type::kBF16 || t == Type::kBF16x2;
  bool real = small || t == Type::kF32 || t == Type::kF64;
  bool bits = t == Type::kB16 || t == Type::kB32 || t == Type::kB64;
  int op = int(d.i.value);
  bool fits = real   ? op == kAdd || (small && op <= kMax)
              : bits ? op >= kAnd
                     : t == Type::kU32 || (op <= kMax && (t == Type::kS32 || t == Type::kU64 || (t == Type::kS64 && op != kAdd)));
  if (t == Type::kU32 && op > kDec) fits = false;
  if (t == Type::kB16 && op != kCas) fits = false;
  if (!fits || noftz != small) d.refuse("not for this type");
  std::size_t at = reduce ? 0 : 1, operands = at + 2 + (op == kCas);
  d.finish(operands);
  d.i.flags = std::uint8_t(order | int(reduce));
  int bytes = bytes_of(t);
  if (!reduce) d.i.d = d.destination(0, bytes);
  d.address(at, space);
  d.i.b = d.source(at + 1, t);
  if (op == kCas) d.i.c = d.source(at + 2, t);
  d.i.run = t == Type::kS32  ? &atomic<std::int32_t>
            : t == Type::kS64 ? &atomic<std::int64_t>
            : bytes == 2      ? &atomic<std::uint16_t>
            : bytes == 4      ? &atomic<std::uint32_t>
                              : &atomic<std::uint64_t>;
}

}  // namespace

void add_atomics(Table& t) {
  t["atom"] = [](Decode& d) { decode(d, false); };
  t["red"] = [](Decode& d) { decode(d, true); };
}

}  // namespace simulator
