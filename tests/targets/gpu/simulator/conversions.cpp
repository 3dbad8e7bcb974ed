// cvt: between integers, between floats, and from one to the other, with all their ways of rounding.
#include <cmath>
#include <limits>

#include "decode.h"
#include "floats.h"
#include "lanes.h"

namespace simulator {
namespace {

constexpr std::uint8_t kFtz = 1, kSat = 2, kRelu = 4, kToInteger = 8, kFinite = 16;

template <class T>
void load_wide(Warp& w, const Slot& s, std::int64_t* out) {
  T buffer[kLanes];
  const T* a = w.read<T>(s, buffer);
  for (int l = 0; l < kLanes; ++l) out[l] = std::int64_t(a[l]);
}

void load_integers(Warp& w, const Slot& s, Type t, std::int64_t* out) {
  switch (t) {
    case Type::kU8: return load_wide<std::uint8_t>(w, s, out);
    case Type::kS8: return load_wide<std::int8_t>(w, s, out);
    case Type::kU16: return load_wide<std::uint16_t>(w, s, out);
    case Type::kS16: return load_wide<std::int16_t>(w, s, out);
    case Type::kU32: return load_wide<std::uint32_t>(w, s, out);
    case Type::kS32: return load_wide<std::int32_t>(w, s, out);
    case Type::kU64: return load_wide<std::uint64_t>(w, s, out);
    default: return load_wide<std::int64_t>(w, s, out);
  }
}

template <class T>
void store_wide(Warp& w, const Slot& s, const std::int64_t* in, Mask mask, bool sat, bool from_unsigned) {
  T out[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    out[l] = T(in[l]);
    if (!sat) continue;
    constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    if (from_unsigned || in[l] >= 0) {
      if (std::uint64_t(in[l]) > std::uint64_t(most)) out[l] = most;
    } else if (!std::is_signed<T>::value || in[l] < std::int64_t(least)) {
      out[l] = least;
    }
  }
  w.write(s, out, mask);
}

void store_integers(Warp& w, const Slot& s, Type t, const std::int64_t* in, Mask mask, bool sat, bool from_unsigned) {
  switch (t) {
    case Type::kU8: return store_wide<std::uint8_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kS8: return store_wide<std::int8_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kU16: return store_wide<std::uint16_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kS16: return store_wide<std::int16_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kU32: return store_wide<std::uint32_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kS32: return store_wide<std::int32_t>(w, s, in, mask, sat, from_unsigned);
    case Type::kU64: return store_wide<std::uint64_t>(w, s, in, mask, sat, from_unsigned);
    default: return store_wide<std::int64_t>(w, s, in, mask, sat, from_unsigned);
  }
}

void load_floats(Warp& w, const Slot& s, Type t, bool ftz, double* out) {
  if (t == Type::kF64) {
    double buffer[kLanes];
    const double* a = w.read<double>(s, buffer);
    std::copy(a, a + kLanes, out);
  } else if (t == Type::kF32) {
    float buffer[kLanes];
    const float* a = w.read<float>(s, buffer);
    for (int l = 0; l < kLanes; ++l) out[l] = double(ftz ? flushed(a[l]) : a[l]);
  } else {
    std::uint16_t buffer[kLanes];
    const std::uint16_t* a = w.read<std::uint16_t>(s, buffer);
    for (int l = 0; l < kLanes; ++l) out[l] = t == Type::kF16 ? Half{a[l]}.value() : BFloat{a[l]}.value();
  }
}

std::uint16_t small(Type t, double x, Rounding r) { return t == Type::kF16 ? Half::from(x, r).bits : BFloat::from(x, r).bits; }

float to_f32(double x, Rounding r) {
  if (r == Rounding::kNearest) return canonical(float(x));
  return as_bits<float>(narrow(x, 8, 23, r));
}

double bounded(double x, std::uint8_t flags, Type to) {
  if (flags & kSat) x = x >= 0 ? std::min(x, 1.0) : 0;  // NaN becomes 0
  if (flags & kRelu) x = x >= 0 || x != x ? x : 0;
  if (flags & kFinite && x == x) {
    double most = to == Type::kF16 || to == Type::kF16x2 ? 65504 : 0x1.fep127;
    x = std::fmax(-most, std::fmin(most, x));
  }
  return x;
}

void store_floats(Warp& w, const Instruction& i, const double* in, Mask mask) {
  auto r = Rounding(i.value);
  if (i.type == Type::kF64) {
    double out[kLanes];
    for (int l = 0; l < kLanes; ++l) out[l] = bounded(in[l], i.flags, i.type);
    w.write(i.d, out, mask);
  } else if (i.type == Type::kF32 || i.type == Type::kTF32) {
    float out[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      double x = bounded(in[l], i.flags, i.type);
      out[l] = i.type == Type::kTF32 ? to_tf32(float(x), r) : to_f32(x, r);
      if (i.flags & kFtz) out[l] = flushed(out[l]);
    }
    w.write(i.d, out, mask);
  } else {
    std::uint16_t out[kLanes];
    for (int l = 0; l < kLanes; ++l) out[l] = small(i.type, bounded(in[l], i.flags, i.type), r);
    w.write(i.d, out, mask);
  }
}

double integral(double x, Rounding r) {
  switch (r) {
    case Rounding::kNearest: return std::nearbyint(x);
    case Rounding::kZero: return std::trunc(x);
    case Rounding::kDown: return std::floor(x);
    default: return std::ceil(x);
  }
}

void integer_to_integer(Warp& w, const Instruction& i, Mask mask) {
  std::int64_t wide[kLanes];
  load_integers(w, i.a, i.from, wide);
  store_integers(w, i.d, i.type, wide, mask, i.flags & kSat, !is_signed(i.from));
}

void float_to_float(Warp& w, const Instruction& i, Mask mask) {
  double wide[kLanes];
  load_floats(w, i.a, i.from, i.flags & kFtz, wide);
  if (i.flags & kToInteger) {
    for (double& x : wide) x = integral(x, Rounding(i.value));
  }
  store_floats(w, i, wide, mask);
}

// What does not fit becomes the nearest number that does.
void float_to_integer(Warp& w, const Instruction& i, Mask mask) {
  double wide[kLanes];
  std::int64_t out[kLanes];
  load_floats(w, i.a, i.from, i.flags & kFtz, wide);
  int bits = 8 * bytes_of(i.type);
  bool sign = is_signed(i.type);
  double least = sign ? -std::ldexp(1.0, bits - 1) : 0, end = std::ldexp(1.0, sign ? bits - 1 : bits);
  std::int64_t most = sign ? std::int64_t((std::uint64_t(1) << (bits - 1)) - 1)
                           : std::int64_t(bits == 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << bits) - 1);
  bool wide_nan = i.from == Type::kF64 || bits == 64;
  std::int64_t nan = wide_nan ? std::int64_t(std::uint64_t(1) << (bits - 1)) : 0;
  for (int l = 0; l < kLanes; ++l) {
    double x = integral(wide[l], Rounding(i.value));
    if (x != x) out[l] = nan;
    else if (x >= end) out[l] = most;
    else if (x <= least) out[l] = sign ? std::int64_t(-(std::uint64_t(1) << (bits - 1))) : 0;
    else out[l] = sign ? std::int64_t(x) : std::int64_t(std::uint64_t(x));
  }
  store_integers(w, i.d, i.type, out, mask, false, false);
}

// A double that rounds to a narrower float as the integer does.
double sticky(std::int64_t v, bool sign) {
  bool minus = sign && v < 0;
  std::uint64_t u = minus ? 0 - std::uint64_t(v) : std::uint64_t(v);
  if (u >> 53) u = (u & ~std::uint64_t(0xfff)) | ((u & 0xfff) ? 0x800 : 0);
  return minus ? -double(u) : double(u);
}

void integer_to_float(Warp& w, const Instruction& i, Mask mask) {
  std::int64_t wide[kLanes];
  double out[kLanes];
  load_integers(w, i.a, i.from, wide);
  bool sign = is_signed(i.from);
  for (int l = 0; l < kLanes; ++l) {
    out[l] = i.type != Type::kF64 ? sticky(wide[l], sign) : sign ? double(wide[l]) : double(std::uint64_t(wide[l]));
  }
  store_floats(w, i, out, mask);
}

// d = {a above, b below}
void pair_of_floats(Warp& w, const Instruction& i, Mask mask) {
  float abuf[kLanes], bbuf[kLanes];
  const float *a = w.read<float>(i.a, abuf), *b = w.read<float>(i.b, bbuf);
  Type t = i.type == Type::kF16x2 ? Type::kF16 : Type::kBF16;
  std::uint32_t out[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    std::uint32_t high = small(t, bounded(double(a[l]), i.flags, i.type), Rounding(i.value));
    out[l] = high << 16 | small(t, bounded(double(b[l]), i.flags, i.type), Rounding(i.value));
  }
  w.write(i.d, out, mask);
}

void pair_of_bytes(Warp& w, const Instruction& i, Mask mask) {
  bool e4m3 = i.type == Type::kE4M3x2, packed = i.from == Type::kF16x2;
  float abuf[kLanes], bbuf[kLanes];
  const float *a = w.read<float>(i.a, abuf), *b = packed ? a : w.read<float>(i.b, bbuf);
  std::uint16_t out[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    auto bits = as_bits<std::uint32_t>(a[l]);
    double high = packed ? Half{std::uint16_t(bits >> 16)}.value() : double(a[l]);
    double low = packed ? Half{std::uint16_t(bits)}.value() : double(b[l]);
    high = bounded(high, i.flags & kRelu, i.type);
    low = bounded(low, i.flags & kRelu, i.type);
    out[l] = std::uint16_t((e4m3 ? to_e4m3(high) : to_e5m2(high)) << 8 | (e4m3 ? to_e4m3(low) : to_e5m2(low)));
  }
  w.write(i.d, out, mask);
}

void bytes_to_pair(Warp& w, const Instruction& i, Mask mask) {
  std::uint16_t buffer[kLanes];
  const std::uint16_t* a = w.read<std::uint16_t>(i.a, buffer);
  bool e4m3 = i.from == Type::kE4M3x2;
  std::uint32_t out[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    auto low = std::uint8_t(a[l]), high = std::uint8_t(a[l] >> 8);
    std::uint32_t h = Half::from(e4m3 ? from_e4m3(high) : from_e5m2(high)).bits;
    out[l] = h << 16 | Half::from(e4m3 ? from_e4m3(low) : from_e5m2(low)).bits;
  }
  w.write(i.d, out, mask);
}

bool is_integer(Type t) { return t >= Type::kU8 && t <= Type::kS64; }

struct RoundingWords {
  bool given = false, to_integer = false;
};

RoundingWords rounding(Decode& d) {
  static const std::map<std::string, Rounding> kWays = {{"rn", Rounding::kNearest}, {"rna", Rounding::kAway},
                                                        {"rz", Rounding::kZero}, {"rm", Rounding::kDown}, {"rp", Rounding::kUp}};
  RoundingWords found;
  if (!d.more()) return found;
  std::string word = d.peek();
  if (word.size() == 3 && word.back() == 'i') {
    found.to_integer = true;
    word.pop_back();
  }
  auto way = kWays.find(word);
  if (way == kWays.end()) return {};
  d.word();
  found.given = true;
  d.i.value = std::int64_t(way->second);
  return found;
}

void decode_pair(Decode& d) {
  Type t = d.i.type;
  bool bytes = t == Type::kE4M3x2 || t == Type::kE5M2x2;
  bool from_bytes = d.i.from == Type::kE4M3x2 || d.i.from == Type::kE5M2x2;
  if (bytes && !(d.i.flags & kFinite)) d.refuse("satfinite is wanted");
  if (from_bytes && t != Type::kF16x2) d.refuse("f16x2 is wanted");
  bool one = from_bytes || d.i.from == Type::kF16x2;
  if (!one && d.i.from != Type::kF32) d.refuse("f32 is wanted");
  d.finish(one ? 2 : 3);
  d.i.run = bytes ? &pair_of_bytes : from_bytes ? &bytes_to_pair : &pair_of_floats;
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, from_bytes ? Type::kB16 : Type::kB32);
  if (!one) d.i.b = d.source(2, Type::kB32);
}

void cvt(Decode& d) {
  RoundingWords way = rounding(d);
  if (d.take("ftz")) d.i.flags |= kFtz;
  if (d.take("sat")) d.i.flags |= kSat;
  if (d.take("satfinite")) d.i.flags |= kFinite;
  if (d.take("relu")) d.i.flags |= kRelu;
  if (d.take("satfinite")) d.i.flags |= kFinite;
  Type to = d.i.type = d.type(), from = d.i.from = d.type();
  if (to == Type::kF16x2 || to == Type::kBF16x2 || to == Type::kE4M3x2 || to == Type::kE5M2x2) {
    if (!way.given || way.to_integer) d.refuse("rn or rz is wanted");
    return decode_pair(d);
  }
  if (!(is_integer(to) || is_float(to)) || !(is_integer(from) || is_float(from)) || from == Type::kTF32) {
    d.refuse("between these types");
  }
  bool narrows = is_float(to) && is_float(from) && bytes_of(to) < bytes_of(from);
  bool same = to == from && is_float(to), rounds = narrows || to == Type::kTF32 || (is_float(to) && is_integer(from)) ||
              (to == Type::kBF16 && from == Type::kF16) || (to == Type::kF16 && from == Type::kBF16);
  if (rounds && (!way.given || way.to_integer)) d.refuse("a way of rounding is wanted");
  if (is_integer(to) && is_float(from) && !way.to_integer) d.refuse("a way of rounding to an integer is wanted");
  if (way.to_integer && !same && !is_integer(to)) d.refuse("rounding to an integer is for the same type");
  if (way.given && !rounds && !way.to_integer) d.refuse("nothing is rounded");
  if (same && way.to_integer) d.i.flags |= kToInteger;
  d.finish(2);
  d.i.run = is_integer(to) ? (is_integer(from) ? &integer_to_integer : &float_to_integer)
                           : (is_integer(from) ? &integer_to_float : &float_to_float);
  bool loose = is_integer(to) || bytes_of(to) == 2;
  d.i.d = loose ? d.wide_destination(0, bytes_of(to)) : d.destination(0, bytes_of(to));
  d.i.a = is_integer(from) ? d.wide_source(1, from) : d.source(1, from);
}

}  // namespace

void add_conversions(Table& t) { t["cvt"] = cvt; }

}  // namespace simulator
