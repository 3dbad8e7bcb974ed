// Python's arrays in a device's memory, and their exchange with other libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array_spec.h"
#include "dlpack_abi.h"
#include "gpu_memory.h"

namespace stablexla::gpu {

// Row-major and contiguous. Asynchronous: its elements may not be computed yet.
class DeviceArray {
 public:
  DeviceArray(ArraySpec spec, BlockRef block) : spec(std::move(spec)), block(std::move(block)) {}

  Device& device() const { return block->device; }
  cuda::Address address() const { return block->address; }
  void wait() const;  // with the GIL, which is released meanwhile
  bool is_ready() const;
  nb::object to_host() const;  // a numpy array
  DeviceArray copy() const;    // on the same device; does not wait
  // Exports the array. `stream` is the consumer's, in DLPack's numbering; later work there is ordered after the array.
  nb::object to_dlpack(nb::object stream, bool is_versioned) const;
  std::string repr() const;

  ArraySpec spec;
  BlockRef block;
};

// A foreign array on a device.
struct Foreign {
  nb::object dtype, owner;  // the owner keeps the memory
  std::vector<std::int64_t> shape, strides;  // in elements
  cuda::Address address = 0;
  bool is_read_only = false;
};

// Returns the device of a value, if it lies on one; queries the object. Throws nb::python_error.
std::optional<int> device_of(nb::handle value);
// Imports a value on the device of `stream`; later work there is ordered after its elements. Throws nb::python_error.
Foreign foreign_array(nb::handle value, const Stream& stream);
// Throws nb::python_error where an array does not have the type and shape of `spec`.
void check_fits(const ArraySpec& spec, const std::string& place, const Foreign& array);
// Returns any array in a device's memory: copied from the host, or without a copy where it is there already.
nb::object put(nb::object value, int device);
nb::object put_foreign(nb::object value, const StreamRef& stream);

// Returns DLPack's code of an element type.
dlpack::DataType dlpack_type(nb::handle dtype);

// Returns this thread's stream for programs: one chosen for the device, or the device's own.
StreamRef current_stream(Device& device);
std::vector<StreamRef>& chosen_streams();  // of this thread, the innermost one last

[[noreturn]] void raise(const Error& error);  // as an ExecutionError
// Returns a numpy array over memory of the host's pool, and its address.
nb::object new_host_array(const ArraySpec& spec, void** data);

}  // namespace stablexla::gpu
