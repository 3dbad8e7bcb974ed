// Copies of many short runs of bytes, between places with strides.
#pragma once

#include <cstdint>
#include <vector>

namespace stablexla {

// The rows of an array: all dimensions but the last, which is a run of bytes. Where they lie: strides in bytes, or one
// after the other where there are none.
struct Rows {
  char* base;
  const std::vector<std::int64_t>* strides = nullptr;
};

// Copies the rows [first, last) of an array of these extents; rows that lie together begin with `first`.
void copy_rows(const std::vector<std::int64_t>& extents, std::int64_t first, std::int64_t last, Rows target,
               Rows source);

}  // namespace stablexla
