// Floats of 8 and 16 bits and tf32 as bits, rounded exactly from wider ones, and what a GPU's NaN looks like.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace simulator {

enum class Rounding : std::uint8_t { kNearest, kAway, kZero, kDown, kUp };

template <class To, class From>
To as_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

inline float canonical(float x) { return x != x ? as_bits<float>(0x7fffffffu) : x; }
inline double canonical(double x) { return x; }
inline float flushed(float x) {
  std::uint32_t bits = as_bits<std::uint32_t>(x);
  return (bits & 0x7f800000u) == 0 ? as_bits<float>(bits & 0x80000000u) : x;
}

// A float of `exponent` and `mantissa` bits nearest to x; what is too large becomes infinity.
inline std::uint32_t narrow(double x, int exponent, int mantissa, Rounding rounding) {
  int bias = (1 << (exponent - 1)) - 1;
  std::uint32_t sign = std::signbit(x) ? 1u << (exponent + mantissa) : 0;
  std::uint32_t infinity = ((1u << exponent) - 1) << mantissa;
  if (x != x) return (sign & 0) | infinity | ((1u << mantissa) - 1);
  double a = std::fabs(x);
  if (std::isinf(a)) return sign | infinity;
  if (a == 0) return sign;
  int e = std::ilogb(a);
  if (e < 1 - bias) e = 1 - bias;                     // denormal
  double scaled = std::ldexp(a, mantissa - e);        // exact: in units of the last place
  double below = std::floor(scaled), rest = scaled - below;
  auto n = std::uint64_t(below);
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest: up = rest > 0.5 || (rest == 0.5 && (n & 1)); break;
    case Rounding::kAway: up = rest >= 0.5; break;
    case Rounding::kZero: break;
    case Rounding::kDown: up = sign && rest > 0; break;
    case Rounding::kUp: up = !sign && rest > 0; break;
  }
  n += up;
  // n has its leading one at bit `mantissa` when normal; the exponent's bits grow with the carry.
  std::uint64_t bits = (std::uint64_t(e - 1 + bias) << mantissa) + n;
  if (bits >= infinity) {
    bool towards_zero = rounding == Rounding::kZero || (rounding == Rounding::kDown && !sign) ||
                        (rounding == Rounding::kUp && sign);
    bits = towards_zero ? infinity - 1 : infinity;
  }
  return sign | std::uint32_t(bits);
}

inline double widen(std::uint32_t bits, int exponent, int mantissa) {
  int bias = (1 << (exponent - 1)) - 1;
  std::uint32_t e = bits >> mantissa & ((1u << exponent) - 1), m = bits & ((1u << mantissa) - 1);
  double sign = bits >> (exponent + mantissa) & 1 ? -1.0 : 1.0;
  if (e == (1u << exponent) - 1) return m ? double(as_bits<float>(0x7fffffffu)) : sign * INFINITY;
  if (e == 0) return sign * std::ldexp(double(m), 1 - bias - mantissa);
  return sign * std::ldexp(double(m | 1u << mantissa), int(e) - bias - mantissa);
}

struct Half {
  std::uint16_t bits;
  static Half from(double x, Rounding r = Rounding::kNearest) { return {std::uint16_t(narrow(x, 5, 10, r))}; }
  double value() const { return table()[bits]; }
  static const float* table();
};

struct BFloat {
  std::uint16_t bits;
  static BFloat from(double x, Rounding r = Rounding::kNearest) { return {std::uint16_t(narrow(x, 8, 7, r))}; }
  double value() const { return double(as_bits<float>(std::uint32_t(bits) << 16)); }
};

inline float to_tf32(float x, Rounding r) { return as_bits<float>(narrow(double(x), 8, 10, r) << 13); }

// e4m3 has no infinity and one NaN; e5m2 is like f16. Saturating: the largest number for what is larger.
inline std::uint8_t to_e4m3(double x) {
  if (x != x) return 0x7f;
  std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  double a = std::fabs(x);
  if (a >= 464) return sign | 0x7e;
  std::uint32_t bits = narrow(a, 5, 3, Rounding::kNearest);  // of a wider range, for the exponent 15
  if (a < 0x1p-6) bits = std::uint32_t(std::nearbyint(a * 512)) + (8u << 3);
  return std::uint8_t(sign | std::min(bits - (8u << 3), 0x7eu));
}
inline double from_e4m3(std::uint8_t b) {
  if ((b & 0x7f) == 0x7f) return NAN;
  double sign = b & 0x80 ? -1 : 1;
  int e = b >> 3 & 15, m = b & 7;
  return sign * (e ? std::ldexp(double(8 + m), e - 10) : std::ldexp(double(m), -9));
}
inline std::uint8_t to_e5m2(double x) {
  std::uint32_t bits = narrow(x, 5, 2, Rounding::kNearest);
  if (x == x && (bits & 0x7f) == 0x7c) --bits;
  return std::uint8_t(bits);
}
inline double from_e5m2(std::uint8_t b) { return widen(b, 5, 2); }

}  // namespace simulator
