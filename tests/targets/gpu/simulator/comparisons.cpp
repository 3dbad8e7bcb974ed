// Comparisons into predicates, and choices by them: setp, set, selp, slct, testp.
#include <cmath>

#include "decode.h"
#include "floats.h"
#include "lanes.h"

namespace simulator {
namespace {

enum Order { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
const std::map<std::string, Order> kOrders = {
    {"eq", kEq}, {"ne", kNe}, {"lt", kLt}, {"le", kLe}, {"gt", kGt}, {"ge", kGe}, {"lo", kLt}, {"ls", kLe}, {"hi", kGt},
    {"hs", kGe}, {"equ", kEqu}, {"neu", kNeu}, {"ltu", kLtu}, {"leu", kLeu}, {"gtu", kGtu}, {"geu", kGeu},
    {"num", kNum}, {"nan", kNan}};

template <Order o, class T>
bool holds(T a, T b) {
  switch (o) {
    case kEq: return a == b;
    case kNe: return a < b || a > b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    case kGe: return a >= b;
    case kEqu: return !(a < b || a > b);
    case kNeu: return a != b;
    case kLtu: return !(a >= b);
    case kLeu: return !(a > b);
    case kGtu: return !(a <= b);
    case kGeu: return !(a < b);
    case kNum: return a == a && b == b;
    case kNan: return a != a || b != b;
  }
}

template <class T>
struct Plain {
  using Raw = T;
  static T value(T raw) { return raw; }
};
template <class T>
struct Small {
  using Raw = std::uint16_t;
  static float value(Raw raw) { return float(T{raw}.value()); }
};
struct Flushed {
  using Raw = float;
  static float value(float raw) { return flushed(raw); }
};

template <Order o, class In>
Mask compare(Warp& w, const Instruction& i) {
  alignas(64) typename In::Raw abuf[kLanes], bbuf[kLanes];
  const auto* a = w.read<typename In::Raw>(i.a, abuf);
  const auto* b = w.read<typename In::Raw>(i.b, bbuf);
  alignas(64) std::uint32_t bits[kLanes];
  for (int l = 0; l < kLanes; ++l) bits[l] = holds<o>(In::value(a[l]), In::value(b[l])) ? 1u << l : 0;
  Mask all = 0;
  for (int l = 0; l < kLanes; ++l) all |= bits[l];
  return all;
}

// What is done with the answer. value: 0 nothing, 1 and, 2 or, 3 xor with the predicate c (flag 1: negated).
void setp(Warp& w, const Instruction& i, Mask mask) {
  Mask p = i.compare(w, i), q = ~p;
  if (i.value) {
    Mask c = w.predicate(i.c);
    if (i.flags & 1) c = ~c;
    p = i.value == 1 ? p & c : i.value == 2 ? p | c : p ^ c;
    q = i.value == 1 ? q & c : i.value == 2 ? q | c : q ^ c;
  }
  w.write_predicate(i.d, p, mask);
  if (!i.more.empty()) w.write_predicate(i.more[0], q, mask);
}

bool in_order(Order o, float a, float b) {
  switch (o) {
#define CASE(X) case X: return holds<X>(a, b);
    CASE(kEq) CASE(kNe) CASE(kLt) CASE(kLe) CASE(kGt) CASE(kGe)
    CASE(kEqu) CASE(kNeu) CASE(kLtu) CASE(kLeu) CASE(kGtu) CASE(kGeu) CASE(kNum) CASE(kNan)
#undef CASE
  }
  return false;
}

// Both halves of a register: the lower one into the first predicate, the upper one into the second.
template <class T>
void setp_halves(Warp& w, const Instruction& i, Mask mask) {
  alignas(64) std::uint32_t abuf[kLanes], bbuf[kLanes];
  const auto* a = w.read<std::uint32_t>(i.a, abuf);
  const auto* b = w.read<std::uint32_t>(i.b, bbuf);
  Mask found[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    auto value = [&](std::uint32_t raw) { return Small<T>::value(std::uint16_t(raw >> 16 * half)); };
    for (int l = 0; l < kLanes; ++l) found[half] |= Mask(in_order(Order(i.value), value(a[l]), value(b[l]))) << l;
  }
  w.write_predicate(i.d, found[0], mask);
  w.write_predicate(i.more[0], found[1], mask);
}

// A number: all ones or 1.0 where it holds.
void set(Warp& w, const Instruction& i, Mask mask) {
  Mask p = i.compare(w, i);
  std::uint32_t out[kLanes];
  for (int l = 0; l < kLanes; ++l) out[l] = p >> l & 1 ? std::uint32_t(i.value) : 0;
  w.write(i.d, out, mask);
}

template <class In>
Compare by_order(Order o, bool floats) {
  switch (o) {
#define CASE(X) case X: return &compare<X, In>;
    CASE(kEq) CASE(kNe) CASE(kLt) CASE(kLe) CASE(kGt) CASE(kGe)
    default: break;
  }
  using Value = decltype(In::value({}));
  if constexpr (std::is_floating_point<Value>::value) {
    if (!floats) return nullptr;
    switch (o) {
      CASE(kEqu) CASE(kNeu) CASE(kLtu) CASE(kLeu) CASE(kGtu) CASE(kGeu) CASE(kNum) CASE(kNan)
      default: break;
    }
  }
#undef CASE
  return nullptr;
}

Compare by_type(Type t, Order o, bool ftz) {
  switch (t) {
    case Type::kB16: case Type::kU16: return by_order<Plain<std::uint16_t>>(o, false);
    case Type::kB32: case Type::kU32: return by_order<Plain<std::uint32_t>>(o, false);
    case Type::kB64: case Type::kU64: return by_order<Plain<std::uint64_t>>(o, false);
    case Type::kS16: return by_order<Plain<std::int16_t>>(o, false);
    case Type::kS32: return by_order<Plain<std::int32_t>>(o, false);
    case Type::kS64: return by_order<Plain<std::int64_t>>(o, false);
    case Type::kF32: return ftz ? by_order<Flushed>(o, true) : by_order<Plain<float>>(o, true);
    case Type::kF64: return by_order<Plain<double>>(o, true);
    case Type::kF16: return by_order<Small<Half>>(o, true);
    case Type::kBF16: return by_order<Small<BFloat>>(o, true);
    default: return nullptr;
  }
}

void decode_setp_halves(Decode& d, Type t, Order order, bool ftz) {
  if (d.i.value || ftz) d.refuse("not for this type");
  d.finish(3);
  const Operand& o = d.operand(0);
  if (o.kind != Operand::kPair) d.refuse("two predicates are wanted");
  d.i.run = t == Type::kF16x2 ? &setp_halves<Half> : &setp_halves<BFloat>;
  d.i.value = order;
  d.i.d = d.predicate_destination(o.parts[0]);
  d.i.more = {d.predicate_destination(o.parts[1])};
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
}

void decode_setp(Decode& d) {
  auto order = kOrders.find(d.word());
  if (order == kOrders.end()) d.refuse("this comparison is not known");
  d.i.value = d.take("and") ? 1 : d.take("or") ? 2 : d.take("xor") ? 3 : 0;
  bool ftz = d.take("ftz");
  Type t = d.type();
  bool bits = t == Type::kB16 || t == Type::kB32 || t == Type::kB64;
  if (bits && order->second != kEq && order->second != kNe) d.refuse("bits are equal or not");
  if (t == Type::kF16x2 || t == Type::kBF16x2) return decode_setp_halves(d, t, order->second, ftz);
  d.i.run = &setp;
  d.i.compare = by_type(t, order->second, ftz);
  if (!d.i.compare || (ftz && t != Type::kF32)) d.refuse("not for this type");
  d.finish(d.i.value ? 4 : 3);
  const Operand& o = d.operand(0);
  d.i.d = d.predicate_destination(o.kind == Operand::kPair ? o.parts[0] : o);
  if (o.kind == Operand::kPair) d.i.more = {d.predicate_destination(o.parts[1])};
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
  if (!d.i.value) return;
  bool negated = false;
  d.i.c = d.predicate_source(d.operand(3), negated);
  d.i.flags = negated;
}

void decode_set(Decode& d) {
  auto order = kOrders.find(d.word());
  if (order == kOrders.end()) d.refuse("this comparison is not known");
  bool ftz = d.take("ftz");
  Type to = d.type_of({Type::kU32, Type::kS32, Type::kF32});
  Type t = d.type();
  d.i.run = &set;
  d.i.compare = by_type(t, order->second, ftz);
  if (!d.i.compare) d.refuse("not for this type");
  d.finish(3);
  d.i.value = to == Type::kF32 ? 0x3f800000 : 0xffffffff;
  d.i.d = d.destination(0, 4);
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
}

template <class T>
void selp(Warp& w, const Instruction& i, Mask mask) {
  alignas(64) T abuf[kLanes], bbuf[kLanes], out[kLanes];
  const T *a = w.read<T>(i.a, abuf), *b = w.read<T>(i.b, bbuf);
  Mask p = i.flags ? ~w.predicate(i.c) : w.predicate(i.c);
  for (int l = 0; l < kLanes; ++l) out[l] = p >> l & 1 ? a[l] : b[l];
  w.write(i.d, out, mask);
}

template <class T, class C>
void slct(Warp& w, const Instruction& i, Mask mask) {
  T abuf[kLanes], bbuf[kLanes], out[kLanes];
  C cbuf[kLanes];
  const T *a = w.read<T>(i.a, abuf), *b = w.read<T>(i.b, bbuf);
  const C* c = w.read<C>(i.c, cbuf);
  for (int l = 0; l < kLanes; ++l) out[l] = c[l] >= 0 ? a[l] : b[l];
  w.write(i.d, out, mask);
}

void decode_selp(Decode& d) {
  Type t = d.type();
  d.finish(4);
  int bytes = bytes_of(t);
  d.i.run = bytes == 2 ? &selp<std::uint16_t> : bytes == 4 ? &selp<std::uint32_t> : bytes == 8 ? &selp<std::uint64_t> : nullptr;
  d.i.d = d.destination(0, bytes);
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
  bool negated = false;
  d.i.c = d.predicate_source(d.operand(3), negated);
  d.i.flags = negated;
}

void decode_slct(Decode& d) {
  Type t = d.type(), c = d.type_of({Type::kS32, Type::kF32});
  d.finish(4);
  int bytes = bytes_of(t);
  bool real = c == Type::kF32;
  d.i.run = bytes == 2   ? (real ? &slct<std::uint16_t, float> : &slct<std::uint16_t, std::int32_t>)
            : bytes == 4 ? (real ? &slct<std::uint32_t, float> : &slct<std::uint32_t, std::int32_t>)
            : bytes == 8 ? (real ? &slct<std::uint64_t, float> : &slct<std::uint64_t, std::int32_t>) : nullptr;
  d.i.d = d.destination(0, bytes);
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
  d.i.c = d.source(3, c);
}

template <class T>
void testp(Warp& w, const Instruction& i, Mask mask) {
  T abuf[kLanes];
  const T* a = w.read<T>(i.a, abuf);
  Mask p = 0;
  for (int l = 0; l < kLanes; ++l) {
    int c = std::fpclassify(a[l]);
    bool holds[] = {c != FP_NAN && c != FP_INFINITE, c == FP_INFINITE, c != FP_NAN, c == FP_NAN, c == FP_NORMAL, c == FP_SUBNORMAL};
    p |= Mask(holds[i.value]) << l;
  }
  w.write_predicate(i.d, p, mask);
}

void decode_testp(Decode& d) {
  static const char* kWords[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  d.i.value = -1;
  for (int n = 0; n < 6; ++n) {
    if (d.i.value < 0 && d.take(kWords[n])) d.i.value = n;
  }
  if (d.i.value < 0) d.refuse("this test is not known");
  Type t = d.type_of({Type::kF32, Type::kF64});
  d.finish(2);
  d.i.run = t == Type::kF32 ? &testp<float> : &testp<double>;
  d.i.d = d.predicate_destination(d.operand(0));
  d.i.a = d.source(1, t);
}

}  // namespace

void add_comparisons(Table& t) {
  t["setp"] = decode_setp;
  t["set"] = decode_set;
  t["selp"] = decode_selp;
  t["slct"] = decode_slct;
  t["testp"] = decode_testp;
}

}  // namespace simulator
