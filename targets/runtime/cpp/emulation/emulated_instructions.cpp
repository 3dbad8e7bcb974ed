// Emulated GPU instructions, for the threads of emulated_threads.cpp. Each takes immediates and a thread's registers as
// words, and returns words; `shared` is the block's shared memory. For tests where there is no GPU.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#define EMULATED extern "C" __attribute__((visibility("default"))) void

extern "C" void stablexla_emulated_barrier();
extern "C" uint64_t *stablexla_emulated_words(int64_t thread);
extern "C" int64_t stablexla_emulated_self();

namespace {

enum Kind { kBf16, kF16, kTf32, kS8, kU8, kF64 };

int bytes_of(int kind) { return kind == kF64 ? 8 : kind == kTf32 ? 4 : kind <= kF16 ? 2 : 1; }

float from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float size = exponent == 31  ? (mantissa ? NAN : INFINITY)
               : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -size : size;
}

// A factor's value from its bit pattern; all are exact in a double.
double number_of(int kind, const char *at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes_of(kind));
  if (kind == kS8) return static_cast<int8_t>(bits);
  if (kind == kU8) return static_cast<double>(bits);
  if (kind == kF16) return from_half(static_cast<uint16_t>(bits));
  if (kind == kF64) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
  }
  uint32_t word = static_cast<uint32_t>(kind == kBf16 ? bits << 16 : bits & ~uint64_t{0x1fff});  // tf32 has 10 bits
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

// Accumulates one product into a register.
uint64_t plus(int kind, uint64_t sum, double a, double b) {
  if (kind == kS8 || kind == kU8) {
    return static_cast<uint32_t>(sum) + static_cast<uint32_t>(static_cast<int32_t>(a) * static_cast<int32_t>(b));
  }
  uint64_t made = 0;
  if (kind == kF64) {
    double value;
    std::memcpy(&value, &sum, 8);
    value += a * b;
    std::memcpy(&made, &value, 8);
    return made;
  }
  float value;
  uint32_t low = static_cast<uint32_t>(sum);
  std::memcpy(&value, &low, 4);
  value += static_cast<float>(a * b);
  std::memcpy(&made, &value, 4);
  return made;
}

// 128-byte XOR swizzle: permutes chunks of 16 bytes within 1024 bytes of shared memory.
uint64_t exchanged(uint64_t address) { return address ^ (address >> 3 & 0x70); }

struct Tile {
  uint64_t start, leading, stride;
  bool turned;

  Tile(uint64_t descriptor, bool is_turned)
      : start((descriptor & 0x3fff) << 4),
        leading((descriptor >> 16 & 0x3fff) << 4),
        stride((descriptor >> 32 & 0x3fff) << 4),
        turned(is_turned) {}

  // The address of an element: rows of 128 bytes, eight of them together.
  uint64_t at(uint64_t row, uint64_t k, uint64_t bytes) const {
    uint64_t along = turned ? row * bytes : k * bytes, across = turned ? k : row;
    uint64_t panel = turned ? along / 128 * leading : along / 128 * 128;
    return exchanged(start + panel + along % 128 + across % 8 * 128 + across / 8 * stride);
  }
};

}  // namespace

// Immediates: both offsets, whether a size follows. Registers: address in shared memory, global address, size.
EMULATED stablexla_emulated_copy_async(const uint64_t *in, uint64_t *, char *shared) {
  size_t size = in[2] ? in[5] : 16;
  char *to = shared + in[3] + in[0];
  std::memset(to, 0, 16);
  std::memcpy(to, reinterpret_cast<const char *>(in[4] + in[1]), size);
}

EMULATED stablexla_emulated_same(const uint64_t *in, uint64_t *out, char *) {
  for (uint64_t i = 0; i < in[0]; ++i) out[i] = in[1 + i];
}

// Immediates: offset, lanes, bytes of each.
EMULATED stablexla_emulated_load_shared(const uint64_t *in, uint64_t *out, char *shared) {
  for (uint64_t i = 0; i < in[1]; ++i) {
    out[i] = 0;
    std::memcpy(&out[i], shared + in[3] + in[0] + i * in[2], in[2]);
  }
}

// Registers: address, four words.
EMULATED stablexla_emulated_store_shared(const uint64_t *in, uint64_t *, char *shared) {
  for (uint64_t i = 0; i < 4; ++i) std::memcpy(shared + in[0] + 4 * i, &in[1 + i], 4);
}

// ldmatrix. Immediates: offset, whether transposed.
EMULATED stablexla_emulated_load_matrices(const uint64_t *in, uint64_t *out, char *shared) {
  int64_t self = stablexla_emulated_self(), warp = self / 32 * 32, lane = self % 32;
  stablexla_emulated_words(self)[0] = in[2] + in[0];
  stablexla_emulated_barrier();
  for (int64_t matrix = 0; matrix < 4; ++matrix) {
    out[matrix] = 0;
    for (int64_t half = 0; half < 2; ++half) {
      int64_t row = lane / 4, column = lane % 4 * 2 + half;
      if (in[1]) std::swap(row, column);
      const char *from = shared + stablexla_emulated_words(warp + matrix * 8 + row)[0] + column * 2;
      std::memcpy(reinterpret_cast<char *>(&out[matrix]) + half * 2, from, 2);
    }
  }
  stablexla_emulated_barrier();
}

// mma.sync of 16 rows (8 where there are two accumulators), 8 columns and 32 bytes along k. Immediates: kind, sums.
EMULATED stablexla_emulated_multiply_warps(const uint64_t *in, uint64_t *out, char *) {
  int kind = static_cast<int>(in[0]);
  int64_t sums = static_cast<int64_t>(in[1]), bytes = bytes_of(kind), word = bytes == 8 ? 8 : 4;
  int64_t rows = sums / 2, deep = bytes == 8 ? 1 : 2, registers = rows * deep + deep, each = word / bytes;
  int64_t self = stablexla_emulated_self(), warp = self / 32 * 32, lane = self % 32;
  for (int64_t i = 0; i < registers; ++i) stablexla_emulated_words(self)[i] = in[2 + sums + i];
  stablexla_emulated_barrier();
  for (int64_t i = 0; i < sums; ++i) {
    int64_t group = lane / 4, column = lane % 4 * 2 + i % 2;
    out[i] = in[2 + i];
    for (int64_t k = 0; k < 4 * deep * each; ++k) {
      int64_t four = k / each % 4, later = k / (4 * each), part = k % each * bytes;
      const uint64_t *a = stablexla_emulated_words(warp + group * 4 + four) + i / 2 + rows * later;
      const uint64_t *b = stablexla_emulated_words(warp + column * 4 + four) + rows * deep + later;
      const char *left = reinterpret_cast<const char *>(a) + part, *right = reinterpret_cast<const char *>(b) + part;
      out[i] = plus(kind, out[i], number_of(kind, left), number_of(kind, right));
    }
  }
  stablexla_emulated_barrier();
}

// wgmma of 64 rows. Immediates: kind, columns, whether lhs and rhs are transposed. Registers: sums, two descriptors.
EMULATED stablexla_emulated_multiply_groups(const uint64_t *in, uint64_t *out, char *shared) {
  int kind = static_cast<int>(in[0]);
  int64_t columns = static_cast<int64_t>(in[1]), bytes = bytes_of(kind), sums = columns / 2;
  Tile a(in[4 + sums], in[2]), b(in[5 + sums], in[3]);
  int64_t self = stablexla_emulated_self() % 128, lane = self % 32;
  for (int64_t i = 0; i < sums; ++i) {
    int64_t row = self / 32 * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    out[i] = in[4 + i];
    for (int64_t k = 0; k < 32 / bytes; ++k) {
      double left = number_of(kind, shared + a.at(row, k, bytes));
      double right = number_of(kind, shared + b.at(column, k, bytes));
      out[i] = plus(kind, out[i], left, right);
    }
  }
}
