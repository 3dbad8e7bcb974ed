// Import of other libraries' device arrays: by DLPack, or by __cuda_array_interface__.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "arrays.h"
#include "gpu_array.h"

namespace stablexla::gpu {
namespace {

constexpr const char* kSupport = "stablexla.targets.runtime.gpu_arrays";

bool is_device(std::int64_t type) { return type == dlpack::kCuda || type == dlpack::kCudaManaged; }

// A tensor consumed from its capsule, with its deleter.
struct Taken {
  dlpack::Tensor tensor;
  nb::object owner;
  bool is_read_only = false;
};

template <typename Managed>
Taken take(nb::handle capsule, const char* name, const char* used) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), used) != 0) throw_python();
  nb::capsule owner(managed, [](void* held) noexcept {
    auto* managed = static_cast<Managed*>(held);
    if (managed->deleter != nullptr) managed->deleter(managed);
  });
  bool is_read_only = false;
  if constexpr (std::is_same_v<Managed, dlpack::ManagedVersioned>)
    is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
  return {managed->tensor, std::move(owner), is_read_only};
}

// Requests a capsule, of DLPack 1.0 if the object supports that.
nb::object capsule_of(nb::handle value, const Stream& stream) {
  nb::dict keywords;
  // DLPack refuses 0, which for CUDA and torch is the default stream, too
  const cuda::Stream handle = stream.handle != nullptr ? stream.handle : cuda::kLegacyStream;
  keywords["stream"] = reinterpret_cast<std::uintptr_t>(handle);
  keywords["max_version"] = nb::make_tuple(1, 0);
  nb::object method = value.attr("__dlpack__");
  try {
    return method(**keywords);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  nb::dict older;
  older["stream"] = keywords["stream"];
  return method(**older);
}

Taken take(nb::handle value, const Stream& stream) {
  nb::object capsule = capsule_of(value, stream);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned"))
    return take<dlpack::ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
  return take<dlpack::Managed>(capsule, "dltensor", "used_dltensor");
}

bool is_row_major(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  std::int64_t step = 1;
  for (std::int64_t size : shape) step *= size;
  if (step == 0) return true;
  step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= shape[i])
    if (shape[i] != 1 && strides[i] != step) return false;
  return true;
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) strides[i] = step;
  return strides;
}

Foreign from_dlpack(nb::handle value, const Stream& stream) {
  Taken taken = take(value, stream);
  const dlpack::Tensor& tensor = taken.tensor;
  Foreign found;
  found.dtype = cold_path("dtype_of_dlpack", kSupport)(tensor.type.code, tensor.type.bits, tensor.type.lanes);
  found.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  found.strides = row_major(found.shape);
  if (tensor.strides != nullptr) found.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  found.address = reinterpret_cast<cuda::Address>(tensor.data) + tensor.byte_offset;
  found.is_read_only = taken.is_read_only;
  found.owner = std::move(taken.owner);
  return found;
}

Foreign from_interface(nb::handle value, const Stream& stream) {
  const nb::dict told = nb::cast<nb::dict>(value.attr("__cuda_array_interface__"));
  Foreign found;
  found.dtype = cold_path("dtype_of_interface", kSupport)(told["typestr"]);
  found.shape = nb::cast<std::vector<std::int64_t>>(told["shape"]);
  found.strides = row_major(found.shape);
  if (told.contains("strides") && !told["strides"].is_none()) {
    found.strides = nb::cast<std::vector<std::int64_t>>(told["strides"]);  // in bytes
    const auto width = nb::cast<std::int64_t>(found.dtype.attr("itemsize"));
    for (std::int64_t& each : found.strides) each = width != 0 && each % width == 0 ? each / width : -1;
  }
  if (told.contains("stream") && !told["stream"].is_none()) {
    const auto theirs = nb::cast<std::uintptr_t>(told["stream"]);
    ContextScope scope(stream.device);
    stream.wait_for(Stream(stream.device, reinterpret_cast<cuda::Stream>(theirs), false));
  }
  found.address = nb::cast<cuda::Address>(told["data"][0]);
  found.is_read_only = nb::cast<bool>(told["data"][1]);
  found.owner = nb::borrow(value);
  return found;
}

}  // namespace

std::optional<int> device_of(nb::handle value) {
  if (nb::isinstance<DeviceArray>(value)) return nb::cast<const DeviceArray&>(value).device().number;
  if (nb::hasattr(value, "__dlpack_device__")) {
    const nb::object found = value.attr("__dlpack_device__")();
    if (!is_device(nb::cast<std::int64_t>(nb::int_(found[0])))) return std::nullopt;
    return nb::cast<int>(found[1]);
  }
  if (!nb::hasattr(value, "__cuda_array_interface__")) return std::nullopt;
  // The interface has no device; the driver is queried for it.
  const nb::dict interface = nb::cast<nb::dict>(value.attr("__cuda_array_interface__"));
  const auto address = nb::cast<cuda::Address>(interface["data"][0]);
  Driver& driver = Driver::get();
  int number = 0;
  if (address == 0) return number;
  ContextScope scope(driver.device(0));
  const cuda::Result result = driver.cu.cuPointerGetAttribute(&number, cuda::kPointerDeviceOrdinal, address);
  driver.device(0).check(result, "asking where an array is");
  return number;
}

Foreign foreign_array(nb::handle value, const Stream& stream) {
  return nb::hasattr(value, "__dlpack__") ? from_dlpack(value, stream) : from_interface(value, stream);
}

void check_fits(const ArraySpec& spec, const std::string& place, const Foreign& array) {
  const bool same_shape = std::vector<std::int64_t>(spec.shape.begin(), spec.shape.end()) == array.shape;
  if (!same_shape || !spec.dtype.equal(array.dtype))
    cold_path("raise_unfit", kSupport)(place, spec, array.dtype, nb::cast(array.shape));
  if (!is_row_major(array.shape, array.strides)) cold_path("raise_not_contiguous", kSupport)(place, spec);
}

nb::object put_foreign(nb::object value, const StreamRef& stream) {
  if (nb::isinstance<DeviceArray>(value)) return value;
  Foreign array = foreign_array(value, *stream);
  ArraySpec spec(array.dtype, nb::borrow<nb::sequence>(nb::cast(array.shape)), "");
  check_fits(spec, "sx.gpu.put", array);
  Device& device = stream->device;
  auto block = std::make_shared<Block>(device, spec.bytes != 0 ? array.address : kNothing, spec.bytes,
                                       stream->is_ours ? stream : device.default_stream(), std::move(array.owner));
  ContextScope scope(device);
  block->written = device.record(stream);  // computed once its owner's stream has reached this point
  return nb::cast(DeviceArray(std::move(spec), std::move(block)));
}

}  // namespace stablexla::gpu
