// Element type, shape and name of one array of a program's interface.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stablexla {

namespace nb = nanobind;

class ArraySpec {
 public:
  ArraySpec(nb::handle dtype, nb::sequence shape, std::string name);

  nb::object dtype;  // a numpy.dtype
  std::vector<std::intptr_t> shape;
  std::string name;
  std::size_t bytes;

  nb::tuple shape_tuple() const;
  std::string text() const;  // float32[2,3]
  bool operator==(const ArraySpec& other) const;
};

constexpr std::size_t kScalarBytes = 16;  // the widest element, complex128

}  // namespace stablexla
