// Bits: logic, shifts, fields, permutations, counts, and dot products of bytes.
#include "decode.h"
#include "lanes.h"

namespace simulator {
namespace {

struct And { template <class T> static T apply(T a, T b) { return a & b; } };
struct Or { template <class T> static T apply(T a, T b) { return a | b; } };
struct Xor { template <class T> static T apply(T a, T b) { return a ^ b; } };
struct Not { template <class T> static T apply(T a) { return T(~a); } };
struct Shl {
  template <class T> static T apply(T a, std::uint32_t n) { return n < 8 * sizeof(T) ? T(a << n) : T(0); }
};
struct Shr {
  template <class T> static T apply(T a, std::uint32_t n) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    return n < bits ? T(a >> n) : T(a >> (bits - 1) >> 1 | (std::is_signed<T>::value ? a >> (bits - 1) : 0));
  }
};
struct ShfL {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint64_t v = std::uint64_t(b) << 32 | a;
    return std::uint32_t(c >= 32 ? a : (v << c) >> 32);
  }
};
struct ShfR {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint64_t v = std::uint64_t(b) << 32 | a;
    return std::uint32_t(v >> (c >= 32 ? 32 : c));
  }
};
struct ShfLWrap {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) { return ShfL::apply(a, b, c & 31); }
};
struct ShfRWrap {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) { return ShfR::apply(a, b, c & 31); }
};
struct Bfe {
  template <class T> static T apply(T a, std::uint32_t b, std::uint32_t c) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    std::uint32_t at = b & 255, length = c & 255, msb = bits - 1;
    bool sign = false;
    if (std::is_signed<T>::value && length) sign = a >> std::min(at + length - 1, msb) & 1;
    T all = sign ? T(~T(0)) : T(0);
    for (std::uint32_t i = 0; i < std::min(length, bits); ++i) {
      bool bit = at + i <= msb ? (a >> (at + i) & 1) : sign;
      all = T((all & ~(T(1) << i)) | (T(bit) << i));
    }
    return all;
  }
};
struct Bfi {
  template <class T> static T apply(T a, T b, std::uint32_t at, std::uint32_t length) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    at &= 255;
    length &= 255;
    if (at >= bits || length == 0) return b;
    T field = length >= bits ? T(~T(0)) : T((T(1) << length) - 1);
    T mask = T(field << at);
    return (b & ~mask) | (T(a << at) & mask);
  }
};
struct Popc { template <class T> static std::uint32_t apply(T a) { return std::uint32_t(__builtin_popcountll(a)); } };
struct Clz {
  template <class T> static std::uint32_t apply(T a) {
    return a ? std::uint32_t(__builtin_clzll(a)) - (64 - 8 * sizeof(T)) : std::uint32_t(8 * sizeof(T));
  }
};
struct Brev {
  template <class T> static T apply(T a) {
    T r = 0;
    for (std::size_t i = 0; i < 8 * sizeof(T); ++i) r = T(r << 1 | (a >> i & 1));
    return r;
  }
};
struct Bfind {
  template <class T> static std::uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    U u = a < 0 ? U(~a) : U(a);
    return u ? std::uint32_t(63 - __builtin_clzll(u)) : ~0u;
  }
};
struct BfindShift {
  template <class T> static std::uint32_t apply(T a) {
    std::uint32_t at = Bfind::apply(a);
    return at == ~0u ? at : std::uint32_t(8 * sizeof(T) - 1) - at;
  }
};
struct Cnot { template <class T> static T apply(T a) { return a == 0; } };

std::uint32_t byte_of(std::uint64_t v, std::uint32_t which) { return std::uint32_t(v >> (8 * which)) & 255; }

struct Prmt {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint64_t v = std::uint64_t(b) << 32 | a;
    std::uint32_t r = 0;
    for (std::uint32_t i = 0; i < 4; ++i) {
      std::uint32_t pick = c >> (4 * i) & 15, byte = byte_of(v, pick & 7);
      if (pick & 8) byte = byte & 128 ? 255 : 0;
      r |= byte << (8 * i);
    }
    return r;
  }
};
enum PrmtMode { kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };
template <PrmtMode mode>
struct PrmtIn {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint64_t v = std::uint64_t(b) << 32 | a;
    std::uint32_t n = c & 3, r = 0;
    for (std::uint32_t i = 0; i < 4; ++i) {
      std::uint32_t pick = mode == kF4e ? n + i : mode == kB4e ? (n + 8 - i) & 7 : mode == kRc8 ? n
                         : mode == kEcl ? std::max(n, i) : mode == kEcr ? std::min(n, i) : (n & 1) * 2 + (i & 1);
      r |= byte_of(v, pick) << (8 * i);
    }
    return r;
  }
};

template <class A, class B>
struct Dp4a {
  static std::int32_t apply(std::uint32_t a, std::uint32_t b, std::int32_t c) {
    auto sum = std::uint32_t(c);
    for (std::uint32_t i = 0; i < 4; ++i) sum += std::uint32_t(std::int32_t(A(byte_of(a, i))) * std::int32_t(B(byte_of(b, i))));
    return std::int32_t(sum);
  }
};

void lop3(Warp& w, const Instruction& i, Mask mask) {
  std::uint32_t buffers[3][kLanes], out[kLanes];
  const std::uint32_t* a = w.read(i.a, buffers[0]);
  const std::uint32_t* b = w.read(i.b, buffers[1]);
  const std::uint32_t* c = w.read(i.c, buffers[2]);
  for (int l = 0; l < kLanes; ++l) {
    std::uint32_t r = 0;
    for (int t = 0; t < 8; ++t) {
      if (i.value >> t & 1) r |= (t & 4 ? a[l] : ~a[l]) & (t & 2 ? b[l] : ~b[l]) & (t & 1 ? c[l] : ~c[l]);
    }
    out[l] = r;
  }
  w.write(i.d, out, mask);
}

template <class T>
void bfi(Warp& w, const Instruction& i, Mask mask) {
  T buffers[2][kLanes], out[kLanes];
  std::uint32_t positions[2][kLanes];
  const T *a = w.read(i.a, buffers[0]), *b = w.read(i.b, buffers[1]);
  const std::uint32_t *at = w.read(i.c, positions[0]), *length = w.read(i.sources[0], positions[1]);
  for (int l = 0; l < kLanes; ++l) out[l] = Bfi::apply(a[l], b[l], at[l], length[l]);
  w.write(i.d, out, mask);
}

template <class F>
void predicates(Warp& w, const Instruction& i, Mask mask) {
  Mask a = w.predicate(i.a), b = w.predicate(i.b);
  w.write_predicate(i.d, F::apply(i.flags & 1 ? ~a : a, i.flags & 2 ? ~b : b), mask);
}
void not_predicate(Warp& w, const Instruction& i, Mask mask) { w.write_predicate(i.d, ~w.predicate(i.a), mask); }

template <class F>
void logic(Decode& d) {
  Type t = d.type_of({Type::kPred, Type::kB16, Type::kB32, Type::kB64});
  d.finish(3);
  if (t == Type::kPred) {
    bool a = false, b = false;
    d.i.d = d.predicate_destination(d.operand(0));
    d.i.a = d.predicate_source(d.operand(1), a);
    d.i.b = d.predicate_source(d.operand(2), b);
    d.i.flags = std::uint8_t(a | b << 1);
    d.i.run = &predicates<F>;
    return;
  }
  d.i.run = t == Type::kB16   ? &binary<F, std::uint16_t, std::uint16_t, std::uint16_t>
            : t == Type::kB32 ? &binary<F, std::uint32_t, std::uint32_t, std::uint32_t>
                              : &binary<F, std::uint64_t, std::uint64_t, std::uint64_t>;
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
}

template <class F>
void shift(Decode& d) {
  Type t = d.type();
  d.finish(3);
  switch (t) {
    case Type::kB16: case Type::kU16: d.i.run = &binary<F, std::uint16_t, std::uint16_t, std::uint32_t>; break;
    case Type::kB32: case Type::kU32: d.i.run = &binary<F, std::uint32_t, std::uint32_t, std::uint32_t>; break;
    case Type::kB64: case Type::kU64: d.i.run = &binary<F, std::uint64_t, std::uint64_t, std::uint32_t>; break;
    case Type::kS16: d.i.run = &binary<F, std::int16_t, std::int16_t, std::uint32_t>; break;
    case Type::kS32: d.i.run = &binary<F, std::int32_t, std::int32_t, std::uint32_t>; break;
    case Type::kS64: d.i.run = &binary<F, std::int64_t, std::int64_t, std::uint32_t>; break;
    default: d.refuse("not for this type");
  }
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, Type::kU32);
}

void field(Decode& d) {
  Type t = d.type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  d.finish(4);
  using U = std::uint32_t;
  d.i.run = t == Type::kU32   ? &ternary<Bfe, U, U, U, U>
            : t == Type::kS32 ? &ternary<Bfe, std::int32_t, std::int32_t, U, U>
            : t == Type::kU64 ? &ternary<Bfe, std::uint64_t, std::uint64_t, U, U>
                              : &ternary<Bfe, std::int64_t, std::int64_t, U, U>;
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, Type::kU32);
  d.i.c = d.source(3, Type::kU32);
}

// Results of 32 bits, of 32 or 64.
template <class F, bool by_sign>
void counted(Decode& d) {
  Type t = by_sign ? d.type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64}) : d.type_of({Type::kB32, Type::kB64});
  d.finish(2);
  if constexpr (by_sign) {
    d.i.run = t == Type::kU32   ? &unary<F, std::uint32_t, std::uint32_t>
              : t == Type::kS32 ? &unary<F, std::uint32_t, std::int32_t>
              : t == Type::kU64 ? &unary<F, std::uint32_t, std::uint64_t>
                                : &unary<F, std::uint32_t, std::int64_t>;
  } else {
    d.i.run = t == Type::kB32 ? &unary<F, std::uint32_t, std::uint32_t> : &unary<F, std::uint32_t, std::uint64_t>;
  }
  d.i.d = d.destination(0, 4);
  d.i.a = d.source(1, t);
}

template <class F>
void same_width(Decode& d) {
  Type t = d.type_of({Type::kPred, Type::kB16, Type::kB32, Type::kB64});
  d.finish(2);
  if (t == Type::kPred) {
    if (!std::is_same<F, Not>::value) d.refuse("not for predicates");
    d.i.run = &not_predicate;
    d.i.d = d.predicate_destination(d.operand(0));
    d.i.a = d.predicate_source(d.operand(1));
    return;
  }
  d.i.run = t == Type::kB16   ? &unary<F, std::uint16_t, std::uint16_t>
            : t == Type::kB32 ? &unary<F, std::uint32_t, std::uint32_t>
                              : &unary<F, std::uint64_t, std::uint64_t>;
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
}

void three_words(Decode& d, Run run) {
  d.finish(4);
  d.i.run = run;
  d.i.d = d.destination(0, 4);
  d.i.a = d.source(1, Type::kB32);
  d.i.b = d.source(2, Type::kB32);
  d.i.c = d.source(3, Type::kB32);
}

template <class F>
constexpr Run kThree = &ternary<F, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

void funnel(Decode& d) {
  bool left = d.take("l");
  if (!left) d.expect("r");
  bool wrap = d.take("wrap");
  if (!wrap) d.expect("clamp");
  d.expect("b32");
  three_words(d, left ? (wrap ? kThree<ShfLWrap> : kThree<ShfL>) : (wrap ? kThree<ShfRWrap> : kThree<ShfR>));
}

void permute(Decode& d) {
  d.expect("b32");
  Run run = d.take("f4e")   ? kThree<PrmtIn<kF4e>>
            : d.take("b4e") ? kThree<PrmtIn<kB4e>>
            : d.take("rc8") ? kThree<PrmtIn<kRc8>>
            : d.take("ecl") ? kThree<PrmtIn<kEcl>>
            : d.take("ecr") ? kThree<PrmtIn<kEcr>>
            : d.take("rc16") ? kThree<PrmtIn<kRc16>> : kThree<Prmt>;
  three_words(d, run);
}

void dot_of_bytes(Decode& d) {
  Type a = d.type_of({Type::kU32, Type::kS32}), b = d.type_of({Type::kU32, Type::kS32});
  using U = std::uint32_t;
  using S = std::int32_t;
  Run runs[2][2] = {{&ternary<Dp4a<std::uint8_t, std::uint8_t>, S, U, U, S>, &ternary<Dp4a<std::uint8_t, std::int8_t>, S, U, U, S>},
                    {&ternary<Dp4a<std::int8_t, std::uint8_t>, S, U, U, S>, &ternary<Dp4a<std::int8_t, std::int8_t>, S, U, U, S>}};
  three_words(d, runs[a == Type::kS32][b == Type::kS32]);
}

}  // namespace

void add_bits(Table& t) {
  t["and"] = logic<And>;
  t["or"] = logic<Or>;
  t["xor"] = logic<Xor>;
  t["not"] = same_width<Not>;
  t["cnot"] = same_width<Cnot>;
  t["brev"] = same_width<Brev>;
  t["shl"] = shift<Shl>;
  t["shr"] = shift<Shr>;
  t["shf"] = funnel;
  t["bfe"] = field;
  t["popc"] = counted<Popc, false>;
  t["clz"] = counted<Clz, false>;
  t["bfind"] = [](Decode& d) { d.take("shiftamt") ? counted<BfindShift, true>(d) : counted<Bfind, true>(d); };
  t["prmt"] = permute;
  t["dp4a"] = dot_of_bytes;
  t["bfi"] = [](Decode& d) {
    Type type = d.type_of({Type::kB32, Type::kB64});
    d.finish(5);
    d.i.run = type == Type::kB32 ? &bfi<std::uint32_t> : &bfi<std::uint64_t>;
    d.i.d = d.destination(0, bytes_of(type));
    d.i.a = d.source(1, type);
    d.i.b = d.source(2, type);
    d.i.c = d.source(3, Type::kU32);
    d.i.sources = {d.source(4, Type::kU32)};
  };
  t["lop3"] = [](Decode& d) {
    d.expect("b32");
    d.finish(5);
    d.i.run = &lop3;
    d.i.d = d.destination(0, 4);
    d.i.a = d.source(1, Type::kB32);
    d.i.b = d.source(2, Type::kB32);
    d.i.c = d.source(3, Type::kB32);
    d.i.value = d.integer(4);
    if (d.i.value < 0 || d.i.value > 255) d.refuse("a table of 8 bits is wanted");
  };
}

}  // namespace simulator
