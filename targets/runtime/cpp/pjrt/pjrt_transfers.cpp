// Arrays that are filled in parts before they are used, those that are not filled, and those of which an error is known.
#include <cstring>
#include <mutex>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

namespace {

PJRT_Error* check_layout(const PJRT_Buffer_MemoryLayout* layout) {
  return is_of_rows(layout) ? nullptr : error(kUnimplemented, "an array in another order than that of rows");
}

PJRT_Error* part_outside(std::int64_t offset, std::int64_t size, std::size_t bytes) {
  return error(kInvalidArgument, "bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) +
                                     " of an array that has " + std::to_string(bytes));
}

bool is_inside(std::int64_t offset, std::int64_t size, std::size_t bytes) {
  return offset >= 0 && size >= 0 && static_cast<std::uint64_t>(offset) <= bytes &&
         static_cast<std::uint64_t>(size) <= bytes - static_cast<std::uint64_t>(offset);
}

// An array that is being filled; whoever reads it waits until it is.
struct Filled {
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims;
  std::shared_ptr<Storage> storage;
  std::shared_ptr<Outcome> made = std::make_shared<Outcome>();
  bool is_retrieved = false;
};

}  // namespace

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Memory* memory;
  std::vector<Filled> arrays;
  std::mutex mutex;
};

namespace {

using Manager = PJRT_AsyncHostToDeviceTransferManager;

PJRT_Error* find(Manager* manager, int index, Filled*& found) {
  if (index < 0 || static_cast<std::size_t>(index) >= manager->arrays.size())
    return error(kInvalidArgument, "there is no array " + std::to_string(index) + " among the " +
                                       std::to_string(manager->arrays.size()) + " that are filled");
  found = &manager->arrays[static_cast<std::size_t>(index)];
  return nullptr;
}

PJRT_Error* fill(Filled& array, const void* data, std::int64_t offset, std::int64_t size, bool is_last) {
  if (array.made->is_set()) return error(kFailedPrecondition, "the array's last part has been transferred");
  if (!is_inside(offset, size, array.storage->bytes)) return part_outside(offset, size, array.storage->bytes);
  if (size != 0) std::memcpy(static_cast<char*>(array.storage->data) + offset, data, static_cast<std::size_t>(size));
  if (is_last) array.made->set();
  return nullptr;
}

}  // namespace

PJRT_Error* transfer_create(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args) {
  for (std::size_t i = 0; i < args.num_device_layouts; ++i)
    if (PJRT_Error* failure = check_layout(args.device_layouts[i])) return failure;
  auto manager = std::make_unique<Manager>();
  manager->memory = args.memory != nullptr ? args.memory : args.client->memory_list.front();
  for (std::size_t i = 0; i < args.num_shape_specs; ++i) {
    const PJRT_ShapeSpec& spec = args.shape_specs[i];
    Filled array{spec.element_type, {spec.dims, spec.dims + spec.num_dims}, nullptr};
    std::size_t bytes = 0;
    if (PJRT_Error* failure = measure(array.type, array.dims, bytes)) return failure;
    array.storage = Storage::of_pool(bytes);
    if (array.storage == nullptr) return no_memory(bytes);
    manager->arrays.push_back(std::move(array));
  }
  args.transfer_manager = manager.release();
  return nullptr;
}

void transfer_destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args) {
  const std::unique_ptr<Manager> manager(args.transfer_manager);
  for (const Filled& array : manager->arrays)
    if (!array.made->is_set())
      array.made->set(std::unique_ptr<PJRT_Error>(
          error(kCancelled, "the transfer of the array ended before its last part")));
}

PJRT_Error* transfer_data(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args) {
  Filled* array = nullptr;
  std::lock_guard<std::mutex> lock(args.transfer_manager->mutex);
  if (PJRT_Error* failure = find(args.transfer_manager, args.buffer_index, array)) return failure;
  if (PJRT_Error* failure = fill(*array, args.data, args.offset, args.transfer_size, args.is_last_transfer))
    return failure;
  args.done_with_h2d_transfer = done_event();
  return nullptr;
}

PJRT_Error* transfer_literal(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args& args) {
  Filled* array = nullptr;
  std::lock_guard<std::mutex> lock(args.transfer_manager->mutex);
  if (PJRT_Error* failure = find(args.transfer_manager, args.buffer_index, array)) return failure;
  if (PJRT_Error* failure = check_layout(args.shape_layout)) return failure;
  const std::vector<std::int64_t> dims(args.shape_dims, args.shape_dims + args.shape_num_dims);
  if (dims != array->dims || args.shape_element_type != array->type)
    return error(kInvalidArgument, "a literal of another shape or element type than the array's");
  const auto bytes = static_cast<std::int64_t>(array->storage->bytes);
  if (PJRT_Error* failure = fill(*array, args.data, 0, bytes, true)) return failure;
  args.done_with_h2d_transfer = done_event();
  return nullptr;
}

PJRT_Error* transfer_retrieve(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args) {
  Filled* array = nullptr;
  std::lock_guard<std::mutex> lock(args.transfer_manager->mutex);
  if (PJRT_Error* failure = find(args.transfer_manager, args.buffer_index, array)) return failure;
  if (array->is_retrieved) return error(kFailedPrecondition, "the array has been retrieved already");
  array->is_retrieved = true;
  args.buffer_out =
      new PJRT_Buffer(array->type, array->dims, args.transfer_manager->memory, array->storage, Order(), array->made);
  return nullptr;
}

void transfer_device(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args) {
  args.device_out = args.transfer_manager->memory->device;
}

void transfer_count(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args) {
  args.buffer_count = args.transfer_manager->arrays.size();
}

PJRT_Error* transfer_size(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args) {
  Filled* array = nullptr;
  if (PJRT_Error* failure = find(args.transfer_manager, args.buffer_index, array)) return failure;
  args.buffer_size = array->storage->bytes;
  return nullptr;
}

PJRT_Error* transfer_fail(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args) {
  Filled* array = nullptr;
  std::lock_guard<std::mutex> lock(args.transfer_manager->mutex);
  if (PJRT_Error* failure = find(args.transfer_manager, args.buffer_index, array)) return failure;
  array->made->set(std::unique_ptr<PJRT_Error>(
      error(static_cast<Code>(args.error_code), std::string(args.error_message, args.error_message_size))));
  return nullptr;
}

PJRT_Error* buffer_of_nothing(PJRT_Client_CreateUninitializedBuffer_Args& args) {
  if (PJRT_Error* failure = check_layout(args.shape_layout)) return failure;
  std::vector<std::int64_t> dims(args.shape_dims, args.shape_dims + args.shape_num_dims);
  std::size_t bytes = 0;
  if (PJRT_Error* failure = measure(args.shape_element_type, dims, bytes)) return failure;
  auto storage = Storage::of_pool(bytes);
  if (storage == nullptr) return no_memory(bytes);
  PJRT_Memory* memory = args.memory != nullptr ? args.memory : args.device->memories.front();
  args.buffer = new PJRT_Buffer(args.shape_element_type, std::move(dims), memory, std::move(storage));
  return nullptr;
}

PJRT_Error* buffer_of_error(PJRT_Client_CreateErrorBuffer_Args& args) {
  std::vector<std::int64_t> dims(args.shape_dims, args.shape_dims + args.shape_num_dims);
  std::size_t bytes = 0;
  if (PJRT_Error* failure = measure(args.shape_element_type, dims, bytes)) return failure;
  auto storage = Storage::of_pool(bytes);  // a program may be handed it, which then fails before it runs
  if (storage == nullptr) return no_memory(bytes);
  auto made = std::make_shared<Outcome>();
  made->set(std::unique_ptr<PJRT_Error>(
      error(static_cast<Code>(args.error_code), std::string(args.error_message, args.error_message_size))));
  args.buffer = new PJRT_Buffer(args.shape_element_type, std::move(dims), args.memory, std::move(storage), Order(), std::move(made));
  return nullptr;
}

PJRT_Error* copy_part_to_host(PJRT_Buffer_CopyRawToHost_Args& args) {
  const std::shared_ptr<Storage> storage = args.buffer->storage();
  if (storage == nullptr) return error(kInvalidArgument, "the array has been deleted or donated");
  if (!is_inside(args.offset, args.transfer_size, storage->bytes))
    return part_outside(args.offset, args.transfer_size, storage->bytes);
  if (PJRT_Error* failure = args.buffer->wait()) return failure;
  if (args.transfer_size != 0)
    std::memcpy(args.dst, static_cast<const char*>(storage->data) + args.offset, static_cast<std::size_t>(args.transfer_size));
  args.event = done_event();
  return nullptr;
}

}  // namespace stablexla::pjrt
