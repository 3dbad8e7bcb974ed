// f32 and f64: arithmetic rounded to nearest, the approximate functions (computed well), signs, smallest and largest.
#include <cmath>

#include "decode.h"
#include "floats.h"
#include "lanes.h"
#include "shared_names.h"

namespace simulator {
namespace {

struct Add { template <class T> static T apply(T a, T b) { return canonical(a + b); } };
struct Sub { template <class T> static T apply(T a, T b) { return canonical(a - b); } };
struct Mul { template <class T> static T apply(T a, T b) { return canonical(a * b); } };
struct Fma { template <class T> static T apply(T a, T b, T c) { return canonical(std::fma(a, b, c)); } };
struct Div { template <class T> static T apply(T a, T b) { return canonical(a / b); } };
struct Rcp { template <class T> static T apply(T a) { return canonical(T(1) / a); } };
struct Sqrt { template <class T> static T apply(T a) { return canonical(std::sqrt(a)); } };
struct Rsqrt { template <class T> static T apply(T a) { return canonical(T(1.0 / std::sqrt(double(a)))); } };
struct Ex2 { static float apply(float a) { return canonical(float(std::exp2(double(a)))); } };
struct Lg2 { static float apply(float a) { return canonical(float(std::log2(double(a)))); } };
struct Sin { static float apply(float a) { return canonical(float(std::sin(double(a)))); } };
struct Cos { static float apply(float a) { return canonical(float(std::cos(double(a)))); } };
struct Tanh { static float apply(float a) { return canonical(float(std::tanh(double(a)))); } };

struct Abs { template <class B> static B apply(B a) { return a & B(~(B(1) << (8 * sizeof(B) - 1))); } };
struct Neg { template <class B> static B apply(B a) { return a ^ (B(1) << (8 * sizeof(B) - 1)); } };
struct Copysign {
  template <class B> static B apply(B a, B b) {
    constexpr B sign = B(1) << (8 * sizeof(B) - 1);
    return (b & ~sign) | (a & sign);
  }
};
// A NaN gives way to a number; -0 is below +0.
struct Min {
  template <class T> static T apply(T a, T b) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct Max {
  template <class T> static T apply(T a, T b) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  }
};
template <class F>
struct AnyNan {
  template <class T> static T apply(T a, T b) { return a != a || b != b ? canonical(T(NAN)) : F::apply(a, b); }
};
template <class F>
struct Flushing {
  template <class... T> static float apply(T... a) { return flushed(F::apply(flushed(a)...)); }
};
template <class F>
struct Saturating {
  template <class... T> static auto apply(T... a) {
    auto x = F::apply(a...);
    using R = decltype(x);
    return x >= R(0) ? (x <= R(1) ? x : R(1)) : R(0);  // NaN becomes 0
  }
};

struct Form {
  bool ftz = false, sat = false;
};

template <class F, class T, std::size_t n>
Run plain() {
  if constexpr (n == 1) return &unary<F, T, T>;
  else if constexpr (n == 2) return &binary<F, T, T, T>;
  else return &ternary<F, T, T, T, T>;
}

template <class F, std::size_t n>
Run choose(Type t, Form form) {
  if (t == Type::kF64) return form.ftz || form.sat ? nullptr : plain<F, double, n>();
  if (t != Type::kF32) return nullptr;
  if (form.ftz && form.sat) return plain<Saturating<Flushing<F>>, float, n>();
  if (form.ftz) return plain<Flushing<F>, float, n>();
  return form.sat ? plain<Saturating<F>, float, n>() : plain<F, float, n>();
}

// ftz, sat, the type, and the operands.
template <class F, std::size_t n>
void rest(Decode& d) {
  Form form;
  form.ftz = d.take("ftz");
  form.sat = d.take("sat");
  Type t = d.type();
  d.i.run = choose<F, n>(t, form);
  if (!d.i.run) d.refuse("not for this type");
  d.finish(n + 1);
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  if (n > 1) d.i.b = d.source(2, t);
  if (n > 2) d.i.c = d.source(3, t);
}

template <class F, std::size_t n>
void rounded(Decode& d) {
  if (small_float(d)) return;
  d.expect("rn");
  if (small_float(d)) return;
  rest<F, n>(d);
}

void sum(Decode& d, bool subtract) {
  if (integer_sum(d, subtract) || small_float(d)) return;
  d.take("rn");
  if (small_float(d)) return;
  subtract ? rest<Sub, 2>(d) : rest<Add, 2>(d);
}

void product(Decode& d) {
  if (integer_product(d) || small_float(d)) return;
  d.take("rn");
  if (small_float(d)) return;
  rest<Mul, 2>(d);
}

template <class F, class Approximate, std::size_t n>
void exact_or_approximate(Decode& d, bool wide) {
  if (d.take("approx")) {
    if (!wide && d.statement().words.back() == "f64") d.refuse("not for f64");
    return rest<Approximate, n>(d);
  }
  d.expect("rn");
  rest<F, n>(d);
}

template <class F>
void approximate(Decode& d) {
  d.expect("approx");
  if (small_function(d)) return;
  bool ftz = d.take("ftz");
  if (small_function(d)) return;
  d.type_of({Type::kF32});
  d.finish(2);
  d.i.run = ftz ? &unary<Flushing<F>, float, float> : &unary<F, float, float>;
  d.i.d = d.destination(0, 4);
  d.i.a = d.source(1, Type::kF32);
}

template <class F>
void sign(Decode& d, bool absolute) {
  if (integer_sign(d, absolute) || small_float(d)) return;
  bool ftz = d.take("ftz");
  if (small_float(d)) return;
  Type t = d.type_of({Type::kF32, Type::kF64});
  d.finish(2);
  if (ftz && t == Type::kF64) d.refuse("ftz is for f32");
  struct FlushSign {
    static float apply(float a) { return flushed(as_bits<float>(F::apply(as_bits<std::uint32_t>(a)))); }
  };
  d.i.run = t == Type::kF64 ? &unary<F, std::uint64_t, std::uint64_t>
            : ftz           ? &unary<FlushSign, float, float>
                            : &unary<F, std::uint32_t, std::uint32_t>;
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
}

template <class F>
void extreme(Decode& d, bool largest) {
  if (integer_extreme(d, largest) || small_float(d)) return;
  bool ftz = d.take("ftz");
  bool nan = d.take("NaN");
  if (small_float(d)) return;
  Type t = d.type_of({Type::kF32, Type::kF64});
  if (t == Type::kF64 && nan) d.refuse("NaN is not for f64");
  d.finish_between(3, 4);
  if (d.count() == 4) d.refuse("three operands are not simulated");
  d.i.run = nan ? choose<AnyNan<F>, 2>(t, {ftz, false}) : choose<F, 2>(t, {ftz, false});
  if (!d.i.run) d.refuse("not for this type");
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  d.i.b = d.source(2, t);
}

}  // namespace

void add_floating(Table& t) {
  t["add"] = [](Decode& d) { sum(d, false); };
  t["sub"] = [](Decode& d) { sum(d, true); };
  t["mul"] = product;
  t["fma"] = rounded<Fma, 3>;
  t["div"] = [](Decode& d) {
    if (integer_quotient(d)) return;
    d.take("full") ? rest<Div, 2>(d) : exact_or_approximate<Div, Div, 2>(d, false);
  };
  t["rcp"] = [](Decode& d) { exact_or_approximate<Rcp, Rcp, 1>(d, true); };
  t["sqrt"] = [](Decode& d) { exact_or_approximate<Sqrt, Sqrt, 1>(d, false); };
  t["rsqrt"] = [](Decode& d) {
    if (!d.more() || d.peek() != "approx") d.refuse("approx is wanted");
    exact_or_approximate<Rsqrt, Rsqrt, 1>(d, true);
  };
  t["ex2"] = approximate<Ex2>;
  t["lg2"] = approximate<Lg2>;
  t["sin"] = approximate<Sin>;
  t["cos"] = approximate<Cos>;
  t["tanh"] = approximate<Tanh>;
  t["abs"] = [](Decode& d) { sign<Abs>(d, true); };
  t["neg"] = [](Decode& d) { sign<Neg>(d, false); };
  t["min"] = [](Decode& d) { extreme<Min>(d, false); };
  t["max"] = [](Decode& d) { extreme<Max>(d, true); };
  t["copysign"] = [](Decode& d) {
    Type type = d.type_of({Type::kF32, Type::kF64});
    d.finish(3);
    d.i.run = type == Type::kF32 ? &binary<Copysign, std::uint32_t, std::uint32_t, std::uint32_t>
                                 : &binary<Copysign, std::uint64_t, std::uint64_t, std::uint64_t>;
    d.i.d = d.destination(0, bytes_of(type));
    d.i.a = d.source(1, type);
    d.i.b = d.source(2, type);
  };
}

}  // namespace simulator
