// Arrays in a device's memory, as Python sees them, and how they go to other libraries and come from them.
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

// C-contiguous. Its elements may not be computed yet.
class DeviceArray {
 public:
  DeviceArray(ArraySpec spec, BlockRef block) : spec(std::move(spec)), block(std::move(block)) {}

  Device& device() const { return block->device; }
  cuda::Address address() const { return block->address; }
  void wait() const;  // with the GIL, which is released meanwhile
  bool is_ready() const;
  nb::object to_host() const;  // a numpy array
  DeviceArray copy() const;    // on the same device; does not wait
  // For others. `stream` is theirs, as DLPack numbers it; work queued there later comes after this array is computed.
  nb::object to_dlpack(nb::object stream, bool is_versioned) const;
  std::string repr() const;

  ArraySpec spec;
  BlockRef block;
};

// Somebody else's array that lies on a device.
struct Foreign {
  nb::object dtype, owner;  // the owner keeps the memory
  std::vector<std::int64_t> shape, strides;  // in elements
  cuda::Address address = 0;
  bool is_read_only = false;
};

// The number of the device that a value lies on, if it lies on one; asks the object. Throws nb::python_error.
std::optional<int> device_of(nb::handle value);
// A value that lies on the device of `stream`: what is queued there from now on finds its elements. Throws
// nb::python_error.
Foreign foreign_array(nb::handle value, const Stream& stream);
// Throws nb::python_error where an array is not what `place` takes.
void check_fits(const ArraySpec& spec, const std::string& place, const Foreign& array);
// Any array, in a device's memory: copied from the host, or where it is if it is there.
nb::object put(nb::object value, int device);
nb::object put_foreign(nb::object value, const StreamRef& stream);

// DLPack's number of an element type.
dlpack::DataType dlpack_type(nb::handle dtype);

// The stream that programs run on, on this thread: one that was chosen for the device, or the device's own.
StreamRef current_stream(Device& device);
std::vector<StreamRef>& chosen_streams();  // of this thread, the innermost one last

[[noreturn]] void raise(const Error& error);  // as an ExecutionError
// A numpy array over memory of the host's pool, and where it is.
nb::object new_host_array(const ArraySpec& spec, void** data);

}  // namespace stablexla::gpu
