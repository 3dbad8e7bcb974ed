// f16, bf16 and pairs of them: sums, products, smallest and largest, computed wider and rounded once.
#include "decode.h"
#include "floats.h"
#include "lanes.h"
#include "shared_names.h"

namespace simulator {

const float* Half::table() {
  static const float* all = [] {
    auto* t = new float[65536];
    for (std::uint32_t b = 0; b < 65536; ++b) t[b] = float(widen(b, 5, 10));
    return t;
  }();
  return all;
}

namespace {

struct Add { static double apply(double a, double b, double) { return a + b; } };
struct Sub { static double apply(double a, double b, double) { return a - b; } };
struct Mul { static double apply(double a, double b, double) { return a * b; } };
struct Fma { static double apply(double a, double b, double c) { return std::fma(a, b, c); } };
struct Abs { static double apply(double a, double, double) { return std::fabs(a); } };
struct Neg { static double apply(double a, double, double) { return -a; } };
struct Min {
  static double apply(double a, double b, double) {
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
  }
};
struct Max {
  static double apply(double a, double b, double) {
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
  }
};
struct MinNan { static double apply(double a, double b, double c) { return a != a || b != b ? NAN : Min::apply(a, b, c); } };
struct MaxNan { static double apply(double a, double b, double c) { return a != a || b != b ? NAN : Max::apply(a, b, c); } };
struct Ex2 { static double apply(double a, double, double) { return std::exp2(a); } };
struct Tanh { static double apply(double a, double, double) { return std::tanh(a); } };

// `parts` 16-bit floats in a lane. flags: 1 ftz, 2 sat, 4 relu.
template <class F, class T, int parts>
void compute(Warp& w, const Instruction& i, Mask mask) {
  using Lane = std::conditional_t<parts == 2, std::uint32_t, std::uint16_t>;
  Lane buffers[3][kLanes], out[kLanes];
  const Lane* in[3];
  const Slot* slots[3] = {&i.a, &i.b, &i.c};
  for (int n = 0; n < 3; ++n) in[n] = n < i.value ? w.read<Lane>(*slots[n], buffers[n]) : in[0];
  for (int l = 0; l < kLanes; ++l) {
    Lane all = 0;
    for (int p = 0; p < parts; ++p) {
      double x[3];
      for (int n = 0; n < 3; ++n) x[n] = T{std::uint16_t(in[n][l] >> (16 * p))}.value();
      double y = F::apply(x[0], x[1], x[2]);
      if (i.flags & 2) y = y >= 0 ? std::min(y, 1.0) : 0;
      if (i.flags & 4) y = y >= 0 || y != y ? y : 0;
      all = Lane(all | Lane(T::from(y).bits) << (16 * p));
    }
    out[l] = all;
  }
  w.write(i.d, out, mask);
}

template <class F>
Run choose(Type t) {
  switch (t) {
    case Type::kF16: return &compute<F, Half, 1>;
    case Type::kF16x2: return &compute<F, Half, 2>;
    case Type::kBF16: return &compute<F, BFloat, 1>;
    case Type::kBF16x2: return &compute<F, BFloat, 2>;
    default: return nullptr;
  }
}

// Signs are of bits: NaNs keep theirs.
template <class Lane, bool absolute>
struct Sign {
  static Lane apply(Lane a) {
    constexpr Lane signs = sizeof(Lane) == 4 ? Lane(0x80008000u) : Lane(0x8000u);
    return Lane(absolute ? a & Lane(~signs) : a ^ signs);
  }
};

struct Word {
  const char* name;
  Run (*run)(Type);
  int operands;
};
const Word kWords[] = {{"add", choose<Add>, 2}, {"sub", choose<Sub>, 2}, {"mul", choose<Mul>, 2},
                       {"fma", choose<Fma>, 3}, {"min", choose<Min>, 2}, {"max", choose<Max>, 2},
                       {"abs", nullptr, 1},     {"neg", nullptr, 1},     {"ex2", choose<Ex2>, 1},
                       {"tanh", choose<Tanh>, 1}};

bool is_small(const std::string& word) {
  return word == "f16" || word == "f16x2" || word == "bf16" || word == "bf16x2";
}

}  // namespace

bool small_float(Decode& d) {
  const Statement& s = d.statement();
  if (!is_small(s.words.back())) return false;
  const Word* found = nullptr;
  for (const Word& w : kWords) {
    if (s.words[0] == w.name) found = &w;
  }
  if (!found) return false;
  bool nan = false;
  while (d.more() && !is_small(d.peek())) {
    if (d.take("sat")) {
      d.i.flags |= 2;
    } else if (d.take("relu")) {
      d.i.flags |= 4;
    } else if (d.take("NaN")) {
      nan = true;
    } else if (!d.take("rn")) {
      d.refuse("'" + d.peek() + "' is not simulated for floats of 16 bits");
    }
  }
  Type t = d.type();
  bool wide = bytes_of(t) == 4, absolute = s.words[0] == "abs";
  d.finish(std::size_t(found->operands + 1));
  if (nan && s.words[0] != "min" && s.words[0] != "max") d.refuse("NaN");
  d.i.value = found->operands;
  if (!found->run) {
    d.i.run = wide ? (absolute ? &unary<Sign<std::uint32_t, true>, std::uint32_t, std::uint32_t>
                               : &unary<Sign<std::uint32_t, false>, std::uint32_t, std::uint32_t>)
                   : (absolute ? &unary<Sign<std::uint16_t, true>, std::uint16_t, std::uint16_t>
                               : &unary<Sign<std::uint16_t, false>, std::uint16_t, std::uint16_t>);
  } else {
    d.i.run = nan ? (s.words[0] == "min" ? choose<MinNan>(t) : choose<MaxNan>(t)) : found->run(t);
  }
  d.i.d = d.destination(0, bytes_of(t));
  d.i.a = d.source(1, t);
  if (found->operands > 1) d.i.b = d.source(2, t);
  if (found->operands > 2) d.i.c = d.source(3, t);
  return true;
}

bool small_function(Decode& d) { return small_float(d); }

void add_small_floats(Table&) {}

}  // namespace simulator
