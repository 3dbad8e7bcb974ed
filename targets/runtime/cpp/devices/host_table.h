// Callbacks of one executable's code: host functions, and keys for random numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "array_spec.h"

namespace stablexla {

class FfiCall;

// A host function that a program calls: handler(inputs, outputs), two tuples of arrays.
struct Callback {
  nb::object handler;
  std::vector<ArraySpec> inputs, outputs;
  const FfiCall* ffi = nullptr;  // the handler where it is called without Python
};

class HostTable {
 public:
  // `host` has a list `callbacks`, or is None for a program without callbacks. Throws nb::python_error.
  HostTable(nb::object host, int num_devices);
  HostTable(const HostTable&) = delete;

  // Keys for random numbers: the next one of a device, and their seed.
  std::uint64_t next_random_key(int device) const;
  void seed(std::uint64_t number);

  nb::object host;
  std::vector<Callback> callbacks;
  int num_devices;

 private:
  std::atomic<std::uint64_t> seed_{0};
  std::unique_ptr<std::atomic<std::uint64_t>[]> drawn_;  // by each device
};

}  // namespace stablexla
