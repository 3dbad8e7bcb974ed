// Integers: sums, products, quotients, smallest and largest, with all their types.
#include <limits>
#include <type_traits>

#include "decode.h"
#include "lanes.h"

namespace simulator {
namespace {

template <class T>
using Bits = std::make_unsigned_t<T>;

struct Add { template <class T> static T apply(T a, T b) { return T(Bits<T>(a) + Bits<T>(b)); } };
struct Sub { template <class T> static T apply(T a, T b) { return T(Bits<T>(a) - Bits<T>(b)); } };
struct MulLo {
  template <class T> static T apply(T a, T b) {
    using U = std::conditional_t<sizeof(T) == 2, std::uint32_t, Bits<T>>;  // no overflow of int by promotion
    return T(U(a) * U(b));
  }
};
template <class T>
using Twice = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed<T>::value, std::int32_t, std::uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed<T>::value, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed<T>::value, __int128, unsigned __int128>>>;
struct MulHi {
  template <class T> static T apply(T a, T b) { return T((Twice<T>(a) * Twice<T>(b)) >> (8 * sizeof(T))); }
};
struct MulWide { template <class T> static Twice<T> apply(T a, T b) { return Twice<T>(a) * Twice<T>(b); } };
struct MadLo { template <class T> static T apply(T a, T b, T c) { return Add::apply(MulLo::apply(a, b), c); } };
struct MadHi { template <class T> static T apply(T a, T b, T c) { return Add::apply(MulHi::apply(a, b), c); } };
struct MadWide {
  template <class T> static Twice<T> apply(T a, T b, Twice<T> c) { return Add::apply(MulWide::apply(a, b), c); }
};
struct AddSat {
  template <class T> static T apply(T a, T b) {
    auto s = std::int64_t(a) + std::int64_t(b);
    constexpr std::int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return T(s < least ? least : s > most ? most : s);
  }
};
struct SubSat {
  template <class T> static T apply(T a, T b) {
    auto s = std::int64_t(a) - std::int64_t(b);
    constexpr std::int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return T(s < least ? least : s > most ? most : s);
  }
};
// A quotient by zero is all ones; of the most negative number by -1, that number.
struct Div {
  template <class T> static T apply(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed<T>::value && b == T(-1)) return T(Bits<T>(0) - Bits<T>(a));
    return T(a / b);
  }
};
struct Rem {
  template <class T> static T apply(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed<T>::value && b == T(-1)) return 0;
    return T(a % b);
  }
};
struct Min { template <class T> static T apply(T a, T b) { return a < b ? a : b; } };
struct Max { template <class T> static T apply(T a, T b) { return a > b ? a : b; } };
template <class F>
struct Relu { template <class T> static T apply(T a, T b) { return Max::apply(F::apply(a, b), T(0)); } };
struct Abs { template <class T> static T apply(T a) { return a < 0 ? T(Bits<T>(0) - Bits<T>(a)) : a; } };
struct Neg { template <class T> static T apply(T a) { return T(Bits<T>(0) - Bits<T>(a)); } };
struct Sad {
  template <class T> static T apply(T a, T b, T c) { return Add::apply(c, a < b ? Sub::apply(b, a) : Sub::apply(a, b)); }
};

template <class F>
Run two(Type t) {
  switch (t) {
    case Type::kS16: return &binary<F, std::int16_t, std::int16_t, std::int16_t>;
    case Type::kU16: return &binary<F, std::uint16_t, std::uint16_t, std::uint16_t>;
    case Type::kS32: return &binary<F, std::int32_t, std::int32_t, std::int32_t>;
    case Type::kU32: return &binary<F, std::uint32_t, std::uint32_t, std::uint32_t>;
    case Type::kS64: return &binary<F, std::int64_t, std::int64_t, std::int64_t>;
    case Type::kU64: return &binary<F, std::uint64_t, std::uint64_t, std::uint64_t>;
    default: return nullptr;
  }
}

template <class F>
Run three(Type t) {
  switch (t) {
    case Type::kS16: return &ternary<F, std::int16_t, std::int16_t, std::int16_t, std::int16_t>;
    case Type::kU16: return &ternary<F, std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>;
    case Type::kS32: return &ternary<F, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
    case Type::kU32: return &ternary<F, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
    case Type::kS64: return &ternary<F, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
    case Type::kU64: return &ternary<F, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
    default: return nullptr;
  }
}

template <class F>
Run one(Type t) {
  switch (t) {
    case Type::kS16: return &unary<F, std::int16_t, std::int16_t>;
    case Type::kS32: return &unary<F, std::int32_t, std::int32_t>;
    case Type::kS64: return &unary<F, std::int64_t, std::int64_t>;
    default: return nullptr;
  }
}

template <class F>
Run wide(Type t) {
  switch (t) {
    case Type::kS16: return &binary<F, std::int32_t, std::int16_t, std::int16_t>;
    case Type::kU16: return &binary<F, std::uint32_t, std::uint16_t, std::uint16_t>;
    case Type::kS32: return &binary<F, std::int64_t, std::int32_t, std::int32_t>;
    case Type::kU32: return &binary<F, std::uint64_t, std::uint32_t, std::uint32_t>;
    default: return nullptr;
  }
}

Run wide_sum(Type t) {
  switch (t) {
    case Type::kS16: return &ternary<MadWide, std::int32_t, std::int16_t, std::int16_t, std::int32_t>;
    case Type::kU16: return &ternary<MadWide, std::uint32_t, std::uint16_t, std::uint16_t, std::uint32_t>;
    case Type::kS32: return &ternary<MadWide, std::int64_t, std::int32_t, std::int32_t, std::int64_t>;
    case Type::kU32: return &ternary<MadWide, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t>;
    default: return nullptr;
  }
}

// With a carry in or out: add.cc, addc, sub.cc, subc.
template <class T, bool subtract, bool in, bool out>
void with_carry(Warp& w, const Instruction& i, Mask mask) {
  T abuf[kLanes], bbuf[kLanes], sum[kLanes];
  const T *a = w.read<T>(i.a, abuf), *b = w.read<T>(i.b, bbuf);
  Mask carry = 0;
  for (int l = 0; l < kLanes; ++l) {
    unsigned __int128 x = a[l], y = b[l], c = in ? w.carry >> l & 1 : 0;
    unsigned __int128 s = subtract ? x - y - c : x + y + c;
    sum[l] = T(s);
    carry |= Mask((s >> (8 * sizeof(T))) & 1) << l;
  }
  w.write(i.d, sum, mask);
  if (out) w.carry = (w.carry & ~mask) | (carry & mask);
}

template <bool subtract, bool in>
Run carries(Type t, bool out) {
  bool wide = bytes_of(t) == 8;
  if (out) return wide ? &with_carry<std::uint64_t, subtract, in, true> : &with_carry<std::uint32_t, subtract, in, true>;
  return wide ? &with_carry<std::uint64_t, subtract, in, false> : &with_carry<std::uint32_t, subtract, in, false>;
}

template <bool subtract, bool in>
void decode_carry(Decode& d) {
  bool out = d.take("cc");
  Type t = d.type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  d.finish(3);
  d.i.run = carries<subtract, in>(t, out);
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
}

void operands(Decode& d, Type t, Run run, std::size_t count) {
  d.i.run = run;
  if (!run) d.refuse("not for this type");
  d.finish(count + 1);
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  if (count > 1) d.i.b = d.source(2, t);
  if (count > 2) d.i.c = d.source(3, t);
}

void mul_or_mad(Decode& d, bool mad) {
  enum { kLo, kHi, kWide } part = d.take("lo") ? kLo : d.take("hi") ? kHi : kWide;
  if (part == kWide) d.expect("wide");
  Type t = d.type();
  if (part != kWide) {
    if (mad) return operands(d, t, part == kLo ? three<MadLo>(t) : three<MadHi>(t), 3);
    return operands(d, t, part == kLo ? two<MulLo>(t) : two<MulHi>(t), 2);
  }
  d.i.run = mad ? wide_sum(t) : wide<MulWide>(t);
  d.finish(mad ? 4 : 3);
  int bytes = 2 * bytes_of(t);
  d.i.d = d.destination(0, bytes);
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
  if (mad) d.i.c = d.source(3, bytes == 8 ? (is_signed(t) ? Type::kS64 : Type::kU64) : Type::kB32);
}

// Of both halves of a register.
template <class F, class T>
void of_halves(Warp& w, const Instruction& i, Mask mask) {
  std::uint32_t abuf[kLanes], bbuf[kLanes], out[kLanes];
  const auto *a = w.read<std::uint32_t>(i.a, abuf), *b = w.read<std::uint32_t>(i.b, bbuf);
  for (int l = 0; l < kLanes; ++l) {
    auto low = std::uint16_t(F::apply(T(a[l]), T(b[l]))), high = std::uint16_t(F::apply(T(a[l] >> 16), T(b[l] >> 16)));
    out[l] = std::uint32_t(low) | std::uint32_t(high) << 16;
  }
  w.write(i.d, out, mask);
}

bool next_is_integer(Decode& d, bool only_signed) {
  static const std::string kSigned = " s16 s32 s64 ", kUnsigned = " u16 u32 u64 ";
  if (!d.more()) return false;
  std::string word = " " + d.peek() + " ";
  return kSigned.find(word) != std::string::npos || (!only_signed && kUnsigned.find(word) != std::string::npos);
}

}  // namespace

bool integer_sum(Decode& d, bool subtract) {
  if (d.more() && d.peek() == "cc") {
    subtract ? decode_carry<true, false>(d) : decode_carry<false, false>(d);
    return true;
  }
  if (d.take("sat")) {
    if (!d.more() || d.peek() != "s32") d.refuse("sat is for s32");
    d.type();
    operands(d, Type::kS32, subtract ? two<SubSat>(Type::kS32) : two<AddSat>(Type::kS32), 2);
    return true;
  }
  if (!subtract && (d.take("u16x2") || d.take("s16x2"))) {
    operands(d, Type::kB32, &of_halves<Add, std::uint16_t>, 2);
    return true;
  }
  if (!next_is_integer(d, false)) return false;
  Type t = d.type();
  operands(d, t, subtract ? two<Sub>(t) : two<Add>(t), 2);
  return true;
}

bool integer_product(Decode& d) {
  if (!d.more() || (d.peek() != "lo" && d.peek() != "hi" && d.peek() != "wide")) return false;
  mul_or_mad(d, false);
  return true;
}

bool integer_quotient(Decode& d) {
  if (!next_is_integer(d, false)) return false;
  Type t = d.type();
  operands(d, t, two<Div>(t), 2);
  return true;
}

namespace {

template <class F>
Run extreme_of_halves(bool negative) {
  return negative ? &of_halves<F, std::int16_t> : &of_halves<F, std::uint16_t>;
}

template <class F>
void extreme(Decode& d) {
  bool relu = d.take("relu");  // then 0 is the least
  if (d.more() && (d.peek() == "s16x2" || d.peek() == "u16x2")) {
    bool negative = d.word() == "s16x2";
    if (relu && !negative) d.refuse("relu is for s32 and s16x2");
    return operands(d, Type::kB32, relu ? extreme_of_halves<Relu<F>>(true) : extreme_of_halves<F>(negative), 2);
  }
  Type t = d.type();
  if (relu && t != Type::kS32) d.refuse("relu is for s32 and s16x2");
  operands(d, t, relu ? two<Relu<F>>(t) : two<F>(t), 2);
}

}  // namespace

bool integer_extreme(Decode& d, bool largest) {
  bool special = d.more() && (d.peek() == "relu" || d.peek() == "s16x2" || d.peek() == "u16x2");
  if (!special && !next_is_integer(d, false)) return false;
  largest ? extreme<Max>(d) : extreme<Min>(d);
  return true;
}

bool integer_sign(Decode& d, bool absolute) {
  if (!next_is_integer(d, true)) return false;
  Type t = d.type();
  operands(d, t, absolute ? one<Abs>(t) : one<Neg>(t), 1);
  return true;
}

void add_integer(Table& t) {
  t["mad"] = [](Decode& d) { mul_or_mad(d, true); };
  t["rem"] = [](Decode& d) {
    Type type = d.type();
    operands(d, type, two<Rem>(type), 2);
  };
  t["sad"] = [](Decode& d) {
    Type type = d.type();
    operands(d, type, three<Sad>(type), 3);
  };
  t["addc"] = [](Decode& d) { decode_carry<false, true>(d); };
  t["subc"] = [](Decode& d) { decode_carry<true, true>(d); };
}

}  // namespace simulator
