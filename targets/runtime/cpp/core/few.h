// A small-size optimized array: on the stack up to N elements, else on the heap.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace stablexla {

template <typename T, std::size_t N>
class Few {
 public:
  explicit Few(std::size_t count) {
    if (count > N) {
      many_.resize(count);
      data_ = many_.data();
    }
  }
  Few(const Few&) = delete;
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }

 private:
  std::array<T, N> few_;
  std::vector<T> many_;
  T* data_ = few_.data();
};

}  // namespace stablexla
