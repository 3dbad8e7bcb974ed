#include "gpu_array.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "arrays.h"
#include "gpu_pinned.h"
#include "memory_pool.h"
#include "released_gil.h"

namespace stablexla::gpu {
namespace {

constexpr const char* kSupport = "stablexla.targets.runtime.gpu_arrays";

// An exported tensor with the memory that it refers to.
template <typename Tensor>
struct Export {
  Tensor managed{};
  std::vector<std::int64_t> shape, strides;
  BlockRef block;
  cuda::Stream stream = nullptr;
  bool is_synchronized = false;

  static void give_up(Tensor* managed) {
    auto* self = static_cast<Export*>(managed->context);
    if (!Py_IsInitialized()) return;  // during finalization the memory need not be freed
    nb::gil_scoped_acquire gil;
    // the consumer may have released it on the host alone, while work on its stream still reads it
    try {
      if (!self->is_synchronized)
        self->block->is_used_by_others = true;
      else if (!self->block->device.is_lost())
        self->block->note_foreign_use(self->stream);
    } catch (const Error&) {
      // the context is lost
    }
    delete self;
  }
};

template <typename Tensor>
void drop_capsule(PyObject* capsule) {
  const char* name = PyCapsule_GetName(capsule);
  if (name == nullptr || std::strncmp(name, "used", 4) == 0) return;
  if (auto* managed = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, name))) managed->deleter(managed);
}

template <typename Tensor>
nb::object make_capsule(const DeviceArray& array, cuda::Stream stream, bool is_synchronized, const char* name) {
  auto* held = new Export<Tensor>;
  held->block = array.block;
  held->stream = stream;
  held->is_synchronized = is_synchronized;
  held->shape.assign(array.spec.shape.begin(), array.spec.shape.end());
  held->strides.resize(held->shape.size());
  std::int64_t step = 1;
  for (std::size_t i = held->shape.size(); i-- > 0; step *= held->shape[i]) held->strides[i] = step;
  held->managed.context = held;
  held->managed.deleter = Export<Tensor>::give_up;
  void* data = array.spec.bytes != 0 ? reinterpret_cast<void*>(array.address()) : nullptr;
  held->managed.tensor = {data,
                          {dlpack::kCuda, array.device().number},
                          static_cast<std::int32_t>(held->shape.size()),
                          dlpack_type(array.spec.dtype),
                          held->shape.data(),
                          held->strides.data(),
                          0};
  if constexpr (std::is_same_v<Tensor, dlpack::ManagedVersioned>) held->managed.version = {1, 0};
  PyObject* capsule = PyCapsule_New(&held->managed, name, drop_capsule<Tensor>);
  if (capsule == nullptr) {
    delete held;
    throw_python();
  }
  return nb::steal(capsule);
}

// Decodes DLPack's stream number; none for -1, a consumer that does not synchronize.
std::optional<cuda::Stream> stream_of_number(nb::handle number) {
  if (number.is_none()) return cuda::kLegacyStream;
  const auto value = nb::cast<std::int64_t>(number);
  if (value == -1) return std::nullopt;
  if (value == 0 || value < -1) cold_path("raise_bad_stream", kSupport)(value);
  return reinterpret_cast<cuda::Stream>(static_cast<std::uintptr_t>(value));
}

}  // namespace

void raise(const Error& error) {
  cold_path("raise_error", kSupport)(error.summary, error.hint);
  throw_python();
}

nb::object new_host_array(const ArraySpec& spec, void** data) {
  stablexla::Block block = acquire_block(spec.bytes);
  if (block.data == nullptr) cold_path("raise_out_of_memory", kAvailableMemory)("a copy on the host", spec.bytes);
  *data = block.data;
  return view_of(spec, block.data, nb::steal(owner_of(block)), true);
}

std::vector<StreamRef>& chosen_streams() {
  thread_local std::vector<StreamRef> chosen;
  return chosen;
}

StreamRef current_stream(Device& device) {
  const std::vector<StreamRef>& chosen = chosen_streams();
  for (std::size_t i = chosen.size(); i-- > 0;)
    if (&chosen[i]->device == &device) return chosen[i];
  return device.default_stream();
}

dlpack::DataType dlpack_type(nb::handle dtype) {
  const nb::object found = cold_path("dlpack_type", kSupport)(dtype);
  return {nb::cast<std::uint8_t>(found[0]), nb::cast<std::uint8_t>(found[1]), 1};
}

bool DeviceArray::is_ready() const {
  device().check_alive();
  if (block->written == nullptr) return true;
  ContextScope scope(device());
  return block->written->is_past();
}

void DeviceArray::wait() const {
  device().check_alive();
  const MomentRef written = block->written;
  if (written != nullptr) {
    ReleasedGil released;
    ContextScope scope(device());
    written->wait();
  }
  let_go();
}

nb::object DeviceArray::to_host() const {
  void* data = nullptr;
  nb::object array = new_host_array(spec, &data);
  const BlockRef held = block;
  const MomentRef written = held->written;
  const StreamRef stream = current_stream(device());
  {
    ReleasedGil released;
    device().check_alive();
    ContextScope scope(device());
    if (written != nullptr) stream->wait_for(written->event);
    if (spec.bytes != 0)
      device().check(device().cu.cuMemcpyDtoHAsync_v2(data, address(), spec.bytes, stream->handle),
                     "copying to the host");
    stream->wait();
  }
  let_go();
  return array;
}

DeviceArray DeviceArray::copy() const {
  device().check_alive();
  const StreamRef stream = current_stream(device());
  const StreamRef home = stream->is_ours ? stream : device().default_stream();
  const MomentRef written = block->written;
  const std::string purpose = "a copy of " + spec.text();
  BlockRef made;
  with_memory(device(), [&](ReleasedGil&) {
    made = std::make_shared<Block>(device(), device().memory().take(spec.bytes, *home, purpose), spec.bytes, home);
    if (spec.bytes == 0) return;
    if (written != nullptr) home->wait_for(written->event);
    device().check(device().cu.cuMemcpyDtoDAsync_v2(made->address, address(), spec.bytes, home->handle),
                   "copying on the device");
    made->written = device().record(home);
  });
  if (made->written != nullptr) block->note_use(made->written);
  return {spec, made};
}

nb::object DeviceArray::to_dlpack(nb::object number, bool is_versioned) const {
  const std::optional<cuda::Stream> stream = stream_of_number(number);
  device().check_alive();
  if (stream && block->written != nullptr) {
    ContextScope scope(device());
    Stream(device(), *stream, false).wait_for(block->written->event);
  }
  const cuda::Stream theirs = stream.value_or(nullptr);
  if (is_versioned)
    return make_capsule<dlpack::ManagedVersioned>(*this, theirs, stream.has_value(), "dltensor_versioned");
  return make_capsule<dlpack::Managed>(*this, theirs, stream.has_value(), "dltensor");
}

std::string DeviceArray::repr() const {
  const bool is_pending = !device().is_lost() && !is_ready();
  const std::string where = " on GPU " + std::to_string(device().number);
  return "<DeviceArray " + spec.text() + where + (is_pending ? ", pending>" : ">");
}

nb::object put(nb::object value, int number) {
  Device& device = Driver::get().device(number);
  device.check_alive();
  const StreamRef stream = current_stream(device);
  const std::optional<int> at = device_of(value);
  if (at && *at != number) cold_path("raise_other_device", kSupport)("sx.gpu.put", *at, number);
  if (at) return put_foreign(std::move(value), stream);
  nb::object array = cold_path("host_array", kSupport)(value);
  ArraySpec spec(array.attr("dtype"), nb::borrow<nb::sequence>(array.attr("shape")), "");
  std::vector<nb::object> kept;
  const void* data = host_argument(spec, array.ptr(), nullptr, kept, "sx.gpu.put", 0);
  BlockRef block;
  const std::string purpose = "an array of " + spec.text();
  with_memory(device, [&](ReleasedGil&) {
    const StreamRef home = stream->is_ours ? stream : device.default_stream();
    const cuda::Address address = device.memory().take(spec.bytes, *home, purpose);
    block = std::make_shared<Block>(device, address, spec.bytes, home);
    if (spec.bytes == 0) return;
    device.check(device.cu.cuMemcpyHtoDAsync_v2(address, data, spec.bytes, home->handle), "copying to the device");
    home->wait();  // the caller may change the array after this returns
  });
  return nb::cast(DeviceArray(std::move(spec), std::move(block)));
}

}  // namespace stablexla::gpu
