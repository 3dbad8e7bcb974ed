// wgmma: products of four warps from shared memory, described by descriptors. Each warp computes its own 16 rows.
#include "warpgroup.h"

#include <algorithm>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "checks.h"
#include "decode.h"
#include "floats.h"

namespace simulator {

namespace cuda = stablexla::cuda;

namespace {

constexpr std::uint8_t kTransA = 1, kTransB = 2, kNegateA = 4, kNegateB = 8, kFromRegisters = 16, kSaturate = 32;

// A matrix in shared memory: where 16 bytes of it lie. Rows are along M or N; `along_rows`: these are contiguous.
struct Tile {
  std::int64_t start, leading, stride;
  int swizzle;  // bytes of a line: 16 (none), 32, 64, 128
  int element;
  bool along_rows;

  Tile(std::uint64_t d, int bytes, bool trans) : element(bytes), along_rows(trans) {
    start = std::int64_t(d & 0x3fff) << 4;
    leading = std::int64_t(d >> 16 & 0x3fff) << 4;
    stride = std::int64_t(d >> 32 & 0x3fff) << 4;
    const int lines[] = {16, 128, 64, 32};
    swizzle = lines[d >> 62];
  }
  // Of the 16 bytes with element (row, k), the first of which is a multiple of 16 bytes along the contiguous dimension.
  std::int64_t address(int row, int k) const {
    int per = 16 / element, in_line = swizzle / 16;
    std::int64_t at;
    if (!along_rows) {
      std::int64_t across = swizzle == 16 ? k / per * leading : std::int64_t(k) * element;
      at = row % 8 * swizzle + row / 8 * stride + across;
    } else if (swizzle == 16) {
      at = row / per * stride + k % 8 * 16 + k / 8 * leading;
    } else {
      at = row / per % in_line * 16 + row / (per * in_line) * leading + k % 8 * swizzle + k / 8 * stride;
    }
    std::int64_t a = start + at;
    return a ^ ((a >> 7 & (in_line - 1)) << 4);
  }
};

struct Shape {
  int n, k;
};
Shape shape_of(const Instruction& i) { return {int(i.value >> 16), int(i.value & 0xffff)}; }

double value_of(Type t, const std::uint8_t* at) {
  std::uint32_t word = 0;
  std::memcpy(&word, at, std::size_t(bytes_of(t)));
  switch (t) {
    case Type::kF16: return Half{std::uint16_t(word)}.value();
    case Type::kBF16: return BFloat{std::uint16_t(word)}.value();
    case Type::kE4M3: return from_e4m3(std::uint8_t(word));
    case Type::kE5M2: return from_e5m2(std::uint8_t(word));
    case Type::kS8: return double(std::int8_t(word));
    case Type::kU8: return double(word & 255);
    default: return double(as_bits<float>(word & 0xffffe000u));
  }
}

template <class F>
void for_chunks(const Tile& tile, int first, int rows, int k, F visit) {
  int per = 16 / tile.element;
  for (int r = first; r < first + rows; r += tile.along_rows ? per : 1) {
    for (int c = 0; c < k; c += tile.along_rows ? 1 : per) visit(tile.address(r, c), r, c);
  }
}

// At the begin: what is read must be there, written by nobody without a barrier and a fence of the async proxy.
void note_reads(Warp& w, const Tile& tile, int first, int rows, int k, int change) {
  if (!checks().races) return;
  Shadow& shadow = *w.block->shadow;
  int lane = 0;
  for_chunks(tile, first, rows, k, [&](std::int64_t at, int, int) {
    if (change > 0) reach_shared(w, lane, std::uint64_t(at), 16, Access::kRead);
    for (std::int64_t n = at >> shadow.shift; n <= (at + 15) >> shadow.shift; ++n) {
      Cell& cell = shadow.cells[std::size_t(n)];
      cell.being_read = std::uint16_t(cell.being_read + change);
      if (change < 0) continue;
      const Warp& writer = w.block->warps[cell.write.thread / kLanes];
      if (cell.write.kind && writer.proxy_fence[cell.write.thread % kLanes] <= cell.write.stamp) {
        fault(cuda::kLaunchFailed, where(w, lane) + " reads shared memory at " + std::to_string(at) + " that thread " +
                                       std::to_string(cell.write.thread) + " wrote without fence.proxy.async after it");
      }
    }
  });
}

void matrix(Warp& w, const Tile& tile, Type t, int first, int rows, int k, double* out, bool row_major) {
  int per = 16 / tile.element;
  for_chunks(tile, first, rows, k, [&](std::int64_t at, int r, int c) {
    if (at < 0 || at + 16 > std::int64_t(w.block->shared.size())) fault(cuda::kIllegalAddress, where(w, 0) + " reads outside of shared memory");
    const std::uint8_t* from = w.block->shared.data() + at;
    for (int e = 0; e < per; ++e) {
      int row = r - first + (tile.along_rows ? e : 0), column = c + (tile.along_rows ? 0 : e);
      out[row_major ? row * k + column : column * rows + row] = value_of(t, from + e * tile.element);
    }
  });
}

void rows_from_registers(const WarpgroupProduct& p, Type t, int k, double* out) {
  int bytes = bytes_of(t), per = 4 / bytes;
  for (int e = 0; e < 4 * per; ++e) {
    for (int l = 0; l < kLanes; ++l) {
      int reg = e / per, g = l / 4, at = l % 4 * per + e % per;
      std::uint32_t word = p.rows[std::size_t(reg * kLanes + l)] >> (8 * bytes * (e % per));
      out[(g + 8 * (reg % 2)) * k + reg / 2 * 4 * per + at] = value_of(t, reinterpret_cast<const std::uint8_t*>(&word));
    }
  }
}

void compute(Warp& w, const WarpgroupProduct& p, Accumulators& sums) {
  const Instruction& i = *p.i;
  auto [n, k] = shape_of(i);
  int bytes = bytes_of(i.from);
  Type tb = Type(i.offset);
  std::vector<double> a(std::size_t(16 * k)), b(std::size_t(n * k)), d(std::size_t(16 * n));
  if (i.flags & kFromRegisters) {
    rows_from_registers(p, i.from, k, a.data());
  } else {
    Tile tile(p.a, bytes, i.flags & kTransA);
    matrix(w, tile, i.from, w.index % 4 * 16, 16, k, a.data(), true);
    note_reads(w, tile, w.index % 4 * 16, 16, k, -1);
  }
  Tile tile(p.b, bytes, i.flags & kTransB);
  matrix(w, tile, tb, 0, n, k, b.data(), false);
  note_reads(w, tile, 0, n, k, -1);
  double sign = bool(i.flags & kNegateA) != bool(i.flags & kNegateB) ? -1 : 1;
  for (int r = 0; r < 16; ++r) {
    double* row = &d[std::size_t(r * n)];
    for (int c = 0; c < k; ++c) {
      double x = sign * a[std::size_t(r * k + c)];
      const double* column = &b[std::size_t(c * n)];
      for (int j = 0; j < n; ++j) row[j] += x * column[j];
    }
  }
  bool half = i.type == Type::kF16;
  for (int e = 0; e < n / 2; ++e) {
    for (int l = 0; l < kLanes; ++l) {
      double sum = d[std::size_t((l / 4 + 8 * (e / 2 % 2)) * n + e / 4 * 8 + l % 4 * 2 + e % 2)];
      std::uint32_t& word = sums.values[std::size_t((half ? e / 2 : e) * kLanes + l)];
      int shift = half ? 16 * (e % 2) : 0;
      if (i.type == Type::kS32) {
        double all = sum + (p.scale ? double(std::int32_t(word)) : 0);
        if (i.flags & kSaturate) all = std::min(std::max(all, -2147483648.0), 2147483647.0);
        word = std::uint32_t(std::int64_t(all));
      } else if (half) {
        if (p.scale) sum += Half{std::uint16_t(word >> shift)}.value();
        word = (word & ~(0xffffu << shift)) | std::uint32_t(Half::from(sum).bits) << shift;
      } else {
        if (p.scale) sum += double(as_bits<float>(word));
        word = as_bits<std::uint32_t>(canonical(float(sum)));
      }
    }
  }
}

WarpgroupProducts& products_of(Warp& w) {
  if (!w.products) w.products = std::make_unique<WarpgroupProducts>();
  return *w.products;
}

void start(Warp& w, const Instruction& i, Mask) {
  WarpgroupProducts& all = products_of(w);
  if (!all.fenced) fault(cuda::kLaunchFailed, where(w, 0) + " without wgmma.fence before it");
  if (w.block->warps.size() % 4) fault(cuda::kIllegalInstruction, where(w, 0) + " in a block that is not of whole warpgroups");
  auto [n, k] = shape_of(i);
  int bytes = bytes_of(i.from);
  WarpgroupProduct p;
  p.i = &i;
  p.scale = i.c.bank == 2 || (w.predicate(i.c) & 1);
  p.b = w.lanes<std::uint64_t>(i.b)[0];
  if (i.flags & kFromRegisters) {
    for (const Slot& s : i.sources) p.rows.insert(p.rows.end(), w.lanes<std::uint32_t>(s), w.lanes<std::uint32_t>(s) + kLanes);
  } else {
    p.a = w.lanes<std::uint64_t>(i.a)[0];
    note_reads(w, Tile(p.a, bytes, i.flags & kTransA), w.index % 4 * 16, 16, k, 1);
  }
  for (std::uint64_t d : {p.a, p.b}) {
    if (d >> 49 & 7) fault(cuda::kIllegalInstruction, where(w, 0) + " a descriptor with a base offset, which is not simulated");
  }
  note_reads(w, Tile(p.b, bytes, i.flags & kTransB), 0, n, k, 1);
  Accumulators& sums = all.sums[i.more[0].offset];
  if (!sums.pending++) {
    for (const Slot& s : i.more) {
      std::uint32_t* at = w.lanes<std::uint32_t>(s);
      sums.values.insert(sums.values.end(), at, at + kLanes);
      std::fill_n(at, kLanes, 0x7fc0cbcbu);
    }
  } else if (sums.values.size() != i.more.size() * kLanes) {
    fault(cuda::kIllegalInstruction, where(w, 0) + " sums of another shape are on their way in these registers");
  }
  all.open.push_back(std::move(p));
}

void finish(Warp& w, WarpgroupProducts& all, const std::vector<WarpgroupProduct>& group) {
  for (const WarpgroupProduct& p : group) {
    auto sums = all.sums.find(p.i->more[0].offset);
    compute(w, p, sums->second);
    if (--sums->second.pending) continue;
    for (std::size_t r = 0; r < p.i->more.size(); ++r) w.write(p.i->more[r], &sums->second.values[r * kLanes], kAll);
    all.sums.erase(sums);
  }
}

void fence_run(Warp& w, const Instruction&, Mask) { products_of(w).fenced = true; }

void commit(Warp& w, const Instruction&, Mask) {
  WarpgroupProducts& all = products_of(w);
  all.groups.push_back(std::move(all.open));
  all.open.clear();
}

void wait(Warp& w, const Instruction& i, Mask) {
  WarpgroupProducts& all = products_of(w);
  while (all.groups.size() > std::size_t(i.value)) {
    finish(w, all, all.groups.front());
    all.groups.pop_front();
  }
}

int shape_word(Decode& d, int& k) {
  const std::string& word = d.word();  // m64n128k16
  int n = 0, used = 0;
  if (std::sscanf(word.c_str(), "m64n%dk%d%n", &n, &k, &used) != 2 || std::size_t(used) != word.size()) d.refuse("a shape is wanted");
  if (n < 8 || n > 256 || n % 8) d.refuse("n is a multiple of 8 up to 256");
  return n;
}

int sign_of(Decode& d, std::size_t n) {
  std::int64_t v = d.integer(n);
  if (v != 1 && v != -1) d.refuse("1 or -1 is wanted as operand " + std::to_string(n + 1));
  return v == -1;
}

int bit_of(Decode& d, std::size_t n) {
  std::int64_t v = d.integer(n);
  if (v != 0 && v != 1) d.refuse("0 or 1 is wanted as operand " + std::to_string(n + 1));
  return int(v);
}

void mma_async(Decode& d) {
  if (d.function().module.target.find('a') == std::string::npos) d.refuse("wgmma is for sm_90a");
  d.expect("sync");
  d.expect("aligned");
  int k = 0, n = shape_word(d, k);
  Type to = d.type_of({Type::kF32, Type::kF16, Type::kS32});
  Type a = d.type_of({Type::kF16, Type::kBF16, Type::kTF32, Type::kS8, Type::kU8, Type::kE4M3, Type::kE5M2}), b = d.type();
  bool whole = a == Type::kS8 || a == Type::kU8, turned = a == Type::kF16 || a == Type::kBF16;
  if (whole != (b == Type::kS8 || b == Type::kU8) || (bytes_of(a) != 1 && a != b) || bytes_of(a) != bytes_of(b)) d.refuse("the types of A and B");
  if (whole != (to == Type::kS32) || (to == Type::kF16 && (a == Type::kBF16 || a == Type::kTF32))) d.refuse("the type of D");
  if (k * bytes_of(a) != 32) d.refuse("k is 32 bytes");
  if (whole && d.take("satfinite")) d.i.flags |= kSaturate;
  bool registers = d.operand(1).kind == Operand::kVector;
  d.finish(4 + (whole ? 0 : 2) + (turned ? (registers ? 1 : 2) : 0));
  d.i.kind = Kind::kAligned;
  d.i.type = to;
  d.i.from = a;
  d.i.offset = std::int64_t(b);
  d.i.value = std::int64_t(n) << 16 | k;
  const auto& parts = d.operand(0).parts;
  if (d.operand(0).kind != Operand::kVector || int(parts.size()) != (to == Type::kF16 ? n / 4 : n / 2)) d.refuse("so many registers of D");
  for (const Operand& o : parts) d.i.more.push_back(d.destination(o, 4, false));
  if (registers) {
    d.i.flags |= kFromRegisters;
    if (d.operand(1).parts.size() != 4) d.refuse("four registers of A are wanted");
    for (const Operand& o : d.operand(1).parts) d.i.sources.push_back(d.source(o, Type::kB32, false));
  } else {
    d.i.a = d.source(1, Type::kB64);
  }
  d.i.b = d.source(2, Type::kB64);
  d.i.c = d.predicate_source(d.operand(3));
  if (whole) return void(d.i.run = &start);
  if (sign_of(d, 4)) d.i.flags |= kNegateA;
  if (sign_of(d, 5)) d.i.flags |= kNegateB;
  if (turned && !registers && bit_of(d, 6)) d.i.flags |= kTransA;
  if (turned && bit_of(d, registers ? 6 : 7)) d.i.flags |= kTransB;
  d.i.run = &start;
}

void wgmma(Decode& d) {
  if (d.take("mma_async")) return mma_async(d);
  bool waits = d.take("wait_group"), commits = !waits && d.take("commit_group");
  if (!waits && !commits) d.expect("fence");
  d.expect("sync");
  d.expect("aligned");
  d.finish(waits ? 1 : 0);
  d.i.kind = Kind::kAligned;
  d.i.run = waits ? &wait : commits ? &commit : &fence_run;
  if (waits) d.i.value = d.integer(0);
}

}  // namespace

void finish_products(Warp& w) {
  if (w.products && (!w.products->open.empty() || !w.products->groups.empty())) {
    fault(cuda::kLaunchFailed, where(w, 0) + " ends with products that it has not waited for");
  }
}

void add_warpgroup(Table& t) { t["wgmma"] = wgmma; }

}  // namespace simulator
