// mma.sync, ldmatrix and stmatrix: products of small matrices whose elements lie spread over the lanes of a warp.
#include <algorithm>

#include "checks.h"
#include "decode.h"
#include "floats.h"
#include "machine.h"

namespace simulator {

void lane_addresses(Warp& w, const Instruction& i, std::uint64_t* out);

namespace {

struct Place {
  int row, column;
};

// Where element e of a lane's A lies; `per` elements in a register, in turns of rows g and g + 8.
Place place_a(int lane, int e, int per, int m) {
  int g = lane / 4, t = lane % 4, reg = e / per;
  if (m == 8) return {g, t * per + e % per};
  return {g + 8 * (reg % 2), reg / 2 * 4 * per + t * per + e % per};
}
Place place_b(int lane, int e, int per) {
  int g = lane / 4, t = lane % 4;
  return {e / per * 4 * per + t * per + e % per, g};
}
Place place_c(int lane, int e) { return {lane / 4 + 8 * (e / 2), lane % 4 * 2 + e % 2}; }

double real(Type t, std::uint32_t bits) {
  switch (t) {
    case Type::kF16: return Half{std::uint16_t(bits)}.value();
    case Type::kBF16: return BFloat{std::uint16_t(bits)}.value();
    case Type::kE4M3: return from_e4m3(std::uint8_t(bits));
    case Type::kE5M2: return from_e5m2(std::uint8_t(bits));
    default: return double(as_bits<float>(bits & 0xffffe000u));  // tf32: the low 13 bits are not looked at
  }
}

std::int32_t integer(Type t, std::uint32_t bits) {
  return t == Type::kS8 ? std::int32_t(std::int8_t(bits)) : std::int32_t(bits & 255);
}

struct Shape {
  int m, n, k;
};
Shape shape_of(std::int64_t packed) { return {int(packed >> 16), int(packed >> 8 & 255), int(packed & 255)}; }

template <class T, class F>
void gather(Warp& w, const Instruction& i, Type type, std::size_t first, std::size_t count, int per, T* out, int stride, bool is_a,
            int m, F convert) {
  int bits = 32 / per;
  for (std::size_t r = 0; r < count; ++r) {
    std::uint32_t buffer[kLanes];
    const std::uint32_t* words = w.read<std::uint32_t>(i.sources[first + r], buffer);
    for (int l = 0; l < kLanes; ++l) {
      for (int p = 0; p < per; ++p) {
        int e = int(r) * per + p;
        Place at = is_a ? place_a(l, e, per, m) : place_b(l, e, per);
        std::uint32_t part = bits == 32 ? words[l] : words[l] >> (p * bits) & ((1u << bits) - 1);
        out[at.row * stride + at.column] = convert(type, part);
      }
    }
  }
}

// Products are exact and summed up in f64, then rounded once; the hardware's sums are of no documented order.
void mma_real(Warp& w, const Instruction& i, Mask mask) {
  Shape s = shape_of(i.value);
  int per = i.from == Type::kTF32 ? 1 : i.from == Type::kF16 || i.from == Type::kBF16 ? 2 : 4;
  std::size_t na = std::size_t(s.m * s.k / kLanes / per), nb = std::size_t(s.k * s.n / kLanes / per);
  double a[16 * 32], b[32 * 8], d[16 * 8] = {};
  gather(w, i, i.from, 0, na, per, a, s.k, true, s.m, real);
  gather(w, i, i.flags & 2 ? Type::kE5M2 : i.from, na, nb, per, b, s.n, false, s.m, real);
  for (int row = 0; row < s.m; ++row) {
    for (int k = 0; k < s.k; ++k) {
      for (int n = 0; n < s.n; ++n) d[row * s.n + n] += a[row * s.k + k] * b[k * s.n + n];
    }
  }
  bool half = i.type == Type::kF16, half_c = i.flags & 1;
  std::size_t registers = half ? 2 : 4;
  std::uint32_t out[4][kLanes] = {};
  for (int e = 0; e < 4; ++e) {
    const std::uint32_t* c = w.lanes<std::uint32_t>(i.sources[na + nb + std::size_t(half_c ? e / 2 : e)]);
    for (int l = 0; l < kLanes; ++l) {
      Place at = place_c(l, e);
      double sum = half_c ? Half{std::uint16_t(c[l] >> (16 * (e % 2)))}.value() : double(as_bits<float>(c[l]));
      sum += d[at.row * s.n + at.column];
      if (half) {
        out[e / 2][l] |= std::uint32_t(Half::from(sum).bits) << (16 * (e % 2));
      } else {
        out[e][l] = as_bits<std::uint32_t>(canonical(float(sum)));
      }
    }
  }
  for (std::size_t r = 0; r < registers; ++r) w.write(i.more[r], out[r], mask);
}

void mma_integer(Warp& w, const Instruction& i, Mask mask) {
  Shape s = shape_of(i.value);
  std::size_t na = std::size_t(s.m * s.k / kLanes / 4), nb = std::size_t(s.k * s.n / kLanes / 4);
  std::int32_t a[16 * 32], b[32 * 8];
  std::uint32_t out[4][kLanes];
  gather(w, i, i.from, 0, na, 4, a, s.k, true, s.m, integer);
  gather(w, i, i.flags & 2 ? Type::kS8 : Type::kU8, na, nb, 4, b, s.n, false, s.m, integer);
  std::size_t registers = s.m == 16 ? 4 : 2;
  for (std::size_t r = 0; r < registers; ++r) {
    const std::int32_t* c = w.lanes<std::int32_t>(i.sources[na + nb + r]);
    for (int l = 0; l < kLanes; ++l) {
      Place at = place_c(l, int(r));
      std::int64_t sum = c[l];
      for (int k = 0; k < s.k; ++k) sum += std::int64_t(a[at.row * s.k + k]) * b[k * s.n + at.column];
      if (i.flags & 4) sum = std::min<std::int64_t>(std::max<std::int64_t>(sum, INT32_MIN), INT32_MAX);
      out[r][l] = std::uint32_t(sum);
    }
  }
  for (std::size_t r = 0; r < registers; ++r) w.write(i.more[r], out[r], mask);
}

void mma_f64(Warp& w, const Instruction& i, Mask mask) {
  Shape s = shape_of(i.value);
  std::size_t na = std::size_t(s.m * s.k / kLanes), nb = std::size_t(s.k * s.n / kLanes), nc = std::size_t(s.m * s.n / kLanes);
  double a[16 * 16], b[16 * 8], out[4][kLanes];
  for (std::size_t r = 0; r < na + nb; ++r) {
    const double* words = w.lanes<double>(i.sources[r]);
    for (int l = 0; l < kLanes; ++l) {
      Place at = r < na ? place_a(l, int(r), 1, s.m) : place_b(l, int(r - na), 1);
      (r < na ? a[at.row * s.k + at.column] : b[at.row * s.n + at.column]) = words[l];
    }
  }
  for (std::size_t r = 0; r < nc; ++r) {
    const double* c = w.lanes<double>(i.sources[na + nb + r]);
    for (int l = 0; l < kLanes; ++l) {
      Place at = place_c(l, int(r));
      double sum = c[l];
      for (int k = 0; k < s.k; ++k) sum = std::fma(a[at.row * s.k + k], b[k * s.n + at.column], sum);
      out[r][l] = sum;
    }
  }
  for (std::size_t r = 0; r < nc; ++r) w.write(i.more[r], out[r], mask);
}

std::int64_t packed(int m, int n, int k) { return std::int64_t(m) << 16 | n << 8 | k; }

struct Known {
  const char* shape;
  int m, n, k;
  std::vector<Type> types;
};
const std::vector<Known> kShapes = {
    {"m16n8k16", 16, 8, 16, {Type::kF16, Type::kBF16, Type::kS8, Type::kU8, Type::kF64}},
    {"m16n8k8", 16, 8, 8, {Type::kF16, Type::kBF16, Type::kTF32, Type::kF64}},
    {"m16n8k4", 16, 8, 4, {Type::kTF32, Type::kF64}},
    {"m16n8k32", 16, 8, 32, {Type::kS8, Type::kU8, Type::kE4M3, Type::kE5M2}},
    {"m8n8k4", 8, 8, 4, {Type::kF64}},
    {"m8n8k16", 8, 8, 16, {Type::kS8, Type::kU8}}};

void vector_of(Decode& d, std::size_t n, std::size_t count, Type t, bool to) {
  std::vector<Operand> single;
  const auto& parts = d.parts(n, single);
  if (parts.size() != count) d.refuse("operand " + std::to_string(n + 1) + " has " + std::to_string(parts.size()) + " registers, not " + std::to_string(count));
  for (const Operand& o : parts) {
    if (to) {
      d.i.more.push_back(d.destination(o, bytes_of(t), false));
    } else {
      d.i.sources.push_back(d.source(o, t, false));
    }
  }
}

void mma(Decode& d) {
  d.expect("sync");
  d.expect("aligned");
  std::string name = d.word();
  auto shape = std::find_if(kShapes.begin(), kShapes.end(), [&](const Known& k) { return name == k.shape; });
  if (shape == kShapes.end()) d.refuse("this shape is not simulated");
  d.expect("row");
  d.expect("col");
  if (d.take("satfinite")) d.i.flags |= 4;
  Type td = d.type(), ta = d.type(), tb = d.type(), tc = d.type();
  if (std::find(shape->types.begin(), shape->types.end(), ta) == shape->types.end()) d.refuse("this shape is not for these types");
  bool whole = ta == Type::kS8 || ta == Type::kU8, wide = ta == Type::kF64;
  bool bytes = ta == Type::kE4M3 || ta == Type::kE5M2;
  if (!whole && !bytes && ta != tb) d.refuse("A and B of two types");
  if (whole && (tb != Type::kS8 && tb != Type::kU8)) d.refuse("the type of B");
  if (bytes && (tb != Type::kE4M3 && tb != Type::kE5M2)) d.refuse("the type of B");
  if (ta == Type::kE5M2 && tb == Type::kE4M3) d.refuse("e5m2 by e4m3 is not simulated");
  Type wanted = whole ? Type::kS32 : wide ? Type::kF64 : Type::kF32;
  bool f16 = ta == Type::kF16;
  if ((td != wanted || tc != wanted) && !(f16 && (td == Type::kF16 || td == wanted) && (tc == Type::kF16 || tc == wanted))) {
    d.refuse("the types of C and D");
  }
  if ((d.i.flags & 4) && !whole) d.refuse("satfinite is for integers");
  d.finish(4);
  d.i.kind = Kind::kAligned;
  d.i.type = td;
  d.i.from = ta;
  d.i.value = packed(shape->m, shape->n, shape->k);
  if (tc == Type::kF16) d.i.flags |= 1;
  if (tb == Type::kS8 || (bytes && tb == Type::kE5M2)) d.i.flags |= 2;
  std::size_t per = wide || ta == Type::kTF32 ? 1 : whole || bytes ? 4 : 2;
  Type reg = wide ? Type::kF64 : Type::kB32;
  auto lanes = std::size_t(kLanes);
  std::size_t cells = std::size_t(shape->m * shape->n) / lanes;
  vector_of(d, 0, td == Type::kF16 ? cells / 2 : cells, reg, true);
  vector_of(d, 1, std::size_t(shape->m * shape->k) / lanes / per, reg, false);
  vector_of(d, 2, std::size_t(shape->k * shape->n) / lanes / per, reg, false);
  vector_of(d, 3, tc == Type::kF16 ? cells / 2 : cells, reg, false);
  d.i.run = whole ? &mma_integer : wide ? &mma_f64 : &mma_real;
}

// Lane 8 m + r has the address of row r of matrix m; lane 4 r + c gets elements 2 c and 2 c + 1 of its row r.
void ldmatrix(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  for (std::size_t m = 0; m < i.more.size(); ++m) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      int lane = int(m) * 8 + r;
      std::memcpy(matrix[r], reach(w, lane, i.space, address[lane], 16, Access::kRead), 16);
    }
    std::uint32_t out[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      int r = l / 4, c = l % 4 * 2;
      out[l] = i.flags ? matrix[c][r] | std::uint32_t(matrix[c + 1][r]) << 16 : matrix[r][c] | std::uint32_t(matrix[r][c + 1]) << 16;
    }
    w.write(i.more[m], out, mask);
  }
}

void stmatrix(Warp& w, const Instruction& i, Mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  for (std::size_t m = 0; m < i.sources.size(); ++m) {
    std::uint32_t buffer[kLanes];
    const std::uint32_t* in = w.read<std::uint32_t>(i.sources[m], buffer);
    std::uint16_t matrix[8][8];
    for (int l = 0; l < kLanes; ++l) {
      int r = l / 4, c = l % 4 * 2;
      (i.flags ? matrix[c][r] : matrix[r][c]) = std::uint16_t(in[l]);
      (i.flags ? matrix[c + 1][r] : matrix[r][c + 1]) = std::uint16_t(in[l] >> 16);
    }
    for (int r = 0; r < 8; ++r) {
      int lane = int(m) * 8 + r;
      std::memcpy(reach(w, lane, i.space, address[lane], 16, Access::kWrite), matrix[r], 16);
    }
  }
}

void matrix(Decode& d, bool load) {
  d.expect("sync");
  d.expect("aligned");
  d.expect("m8n8");
  std::size_t n = d.take("x1") ? 1 : d.take("x2") ? 2 : d.take("x4") ? 4 : 0;
  if (!n) d.refuse("x1, x2 or x4 is wanted");
  d.i.flags = d.take("trans");
  Space space = d.take("shared") || d.take("shared::cta") ? Space::kShared : Space::kGeneric;
  d.expect("b16");
  d.finish(2);
  d.i.kind = Kind::kAligned;
  vector_of(d, load ? 0 : 1, n, Type::kB32, load);
  d.address(load ? 1 : 0, space);
  d.i.run = load ? &ldmatrix : &stmatrix;
}

}  // namespace

void add_products(Table& t) {
  t["mma"] = mma;
  t["ldmatrix"] = [](Decode& d) { matrix(d, true); };
  t["stmatrix"] = [](Decode& d) { matrix(d, false); };
}

}  // namespace simulator
