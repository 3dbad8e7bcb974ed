#include "strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace stablexla {
namespace {

using Numbers = std::vector<std::int64_t>;

// kRun is the number of bytes where that is known, else 0.
template <int kRun>
void copy_equal(char* target, std::int64_t target_stride, const char* source, std::int64_t source_stride,
                std::int64_t rows, std::int64_t run) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(target + i * target_stride, source + i * source_stride,
                kRun != 0 ? static_cast<std::size_t>(kRun) : static_cast<std::size_t>(run));
}

auto copy_of(std::int64_t run) {
  switch (run) {
    case 1: return copy_equal<1>;
    case 2: return copy_equal<2>;
    case 4: return copy_equal<4>;
    case 8: return copy_equal<8>;
    case 16: return copy_equal<16>;
    case 32: return copy_equal<32>;
    case 64: return copy_equal<64>;
    default: return copy_equal<0>;
  }
}

std::int64_t offset_of(const Numbers& extents, const Rows& rows, std::int64_t row, std::int64_t first) {
  if (rows.strides == nullptr) return (row - first) * extents.back();
  std::int64_t offset = 0;
  for (std::size_t i = extents.size() - 1; i-- > 0; row /= extents[i]) offset += row % extents[i] * (*rows.strides)[i];
  return offset;
}

}  // namespace

void copy_rows(const Numbers& extents, std::int64_t first, std::int64_t last, Rows target, Rows source) {
  const std::size_t rank = extents.size();
  const std::int64_t run = extents.back(), line = rank > 1 ? extents[rank - 2] : 1;
  const auto stride_of = [&](const Rows& rows) {
    return rows.strides != nullptr && rank > 1 ? (*rows.strides)[rank - 2] : run;
  };
  const std::int64_t target_stride = stride_of(target), source_stride = stride_of(source);
  const auto copy = copy_of(run);
  for (std::int64_t row = first; row < last;) {
    const std::int64_t count = std::min(line - row % line, last - row);
    copy(target.base + offset_of(extents, target, row, first), target_stride,
         source.base + offset_of(extents, source, row, first), source_stride, count, run);
    row += count;
  }
}

}  // namespace stablexla
