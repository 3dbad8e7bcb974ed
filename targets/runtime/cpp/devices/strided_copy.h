// Strided copies of many short runs of bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace stablexla {

// The rows of an array: all dimensions but the last, which is a run of bytes. Strides are in bytes; without strides
// the rows are contiguous.
struct Rows {
  char* base;
  const std::vector<std::int64_t>* strides = nullptr;
};

// Copies the rows [first, last) of an array of these extents; contiguous rows begin with `first`.
void copy_rows(const std::vector<std::int64_t>& extents, std::int64_t first, std::int64_t last, Rows target,
               Rows source);

}  // namespace stablexla
