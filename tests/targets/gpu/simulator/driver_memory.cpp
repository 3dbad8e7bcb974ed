// Memory of devices and of the host, pools, and copies.
#include <cstdlib>
#include <cstring>

#include "driver.h"

using namespace simulator;
using namespace stablexla::cuda;

#define ENTER(name, context)                                     \
  std::lock_guard<std::recursive_mutex> guard(driver().lock);    \
  if (Result failed = enter(#name, context)) return failed;

namespace {

Device* owner_of(Address address) {
  for (auto& device : driver().devices) {
    if (device->memory.inside(address)) return device.get();
  }
  return nullptr;
}

// The device's bytes for a copy, checked when the copy is done.
Allocation& checked(Address address, std::size_t bytes, const char* what) {
  Device* device = owner_of(address);
  Allocation* a = device ? device->memory.find(address) : nullptr;
  std::uint64_t at = a ? address - a->base : 0;
  if (!a || !a->live || at > a->bytes || bytes > a->bytes - at) {
    std::string text = std::string(what) + " of " + std::to_string(bytes) + " bytes";
    if (!a) fault(kIllegalAddress, text + " at an address that is no memory of a device");
    fault(kIllegalAddress, text + " at byte " + std::to_string(at) + " of an allocation of " + std::to_string(a->bytes) +
                               " bytes" + (a->live ? "" : " that was given back"));
  }
  return *a;
}

bool pinned(const void* memory, std::size_t bytes) {
  auto after = driver().host.upper_bound(const_cast<void*>(memory));
  if (after == driver().host.begin()) return false;
  --after;
  auto at = static_cast<const char*>(memory) - static_cast<const char*>(after->first);
  return std::size_t(at) + bytes <= after->second;
}

void write_device(Address to, const void* from, std::size_t bytes) {
  Allocation& a = checked(to, bytes, "a copy to the device");
  std::memcpy(a.data + (to - a.base), from, bytes);
  std::memset(a.valid.data() + (to - a.base), 1, bytes);
}

void read_device(void* to, Address from, std::size_t bytes) {
  Allocation& a = checked(from, bytes, "a copy to the host");
  std::memcpy(to, a.data + (from - a.base), bytes);
}

Result allocate(Address* address, std::size_t bytes) {
  if (!bytes) return kInvalidValue;
  *address = device_now()->memory.allocate(bytes);
  return *address ? kSuccess : kOutOfMemory;
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(cuMemGetInfo_v2, true);
  DeviceMemory& memory = device_now()->memory;
  *total = memory.limit;
  *free = memory.limit - memory.allocated();
  return kSuccess;
}

Result cuMemAlloc_v2(Address* address, std::size_t bytes) {
  ENTER(cuMemAlloc_v2, true);
  return allocate(address, bytes);
}

Result cuMemFree_v2(Address address) {
  ENTER(cuMemFree_v2, true);
  if (!address) return kSuccess;
  drain_device(*device_now());
  Device* device = owner_of(address);
  return device && device->memory.release(address) ? driver().broken : kInvalidValue;
}

Result cuMemAllocAsync(Address* address, std::size_t bytes, Stream stream) {
  ENTER(cuMemAllocAsync, true);
  if (!driver().settings.pools) return kNotSupported;
  Result error;
  stream_of(stream, error);
  if (error) return error;
  Result done = allocate(address, bytes);
  if (done != kOutOfMemory) return done;
  drain_device(*device_now());  // what is being given back counts
  return allocate(address, bytes);
}

Result cuMemFreeAsync(Address address, Stream stream) {
  ENTER(cuMemFreeAsync, true);
  if (!driver().settings.pools) return kNotSupported;
  Device* device = owner_of(address);
  Allocation* a = device ? device->memory.find(address) : nullptr;
  if (!a || a->base != address || !a->live) return kInvalidValue;
  return enqueue(stream, [device, address] {
    if (!device->memory.release(address)) fault(kIllegalAddress, "memory is given back twice");
  }, false);
}

Result cuDeviceGetDefaultMemPool(MemoryPool* pool, Ordinal device) {
  ENTER(cuDeviceGetDefaultMemPool, false);
  if (device < 0 || device >= driver().settings.devices) return kInvalidDevice;
  if (!driver().settings.pools) return kNotSupported;
  *pool = reinterpret_cast<MemoryPool>(driver().devices[std::size_t(device)].get());
  return kSuccess;
}

Result cuMemPoolSetAttribute(MemoryPool pool, MemoryPoolAttribute attribute, void*) {
  ENTER(cuMemPoolSetAttribute, false);
  return pool && attribute == kPoolReleaseThreshold ? kSuccess : kInvalidValue;
}

Result cuMemPoolGetAttribute(MemoryPool pool, MemoryPoolAttribute attribute, void* value) {
  ENTER(cuMemPoolGetAttribute, false);
  auto* device = reinterpret_cast<Device*>(pool);
  bool high = attribute == kPoolReservedMemHigh || attribute == kPoolUsedMemHigh;
  if (!device || attribute < kPoolReservedMemCurrent || attribute > kPoolUsedMemHigh) return kInvalidValue;
  std::uint64_t bytes = high ? device->memory.largest() : device->memory.allocated();
  std::memcpy(value, &bytes, 8);
  return kSuccess;
}

Result cuMemPoolTrimTo(MemoryPool pool, std::size_t) {
  ENTER(cuMemPoolTrimTo, false);
  return pool ? kSuccess : kInvalidValue;
}

// From memory that is not pinned the bytes are taken at once, as the driver does.
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyHtoDAsync_v2, true);
  if (!bytes) return kSuccess;
  if (pinned(from, bytes)) return enqueue(stream, [=] { write_device(to, from, bytes); }, false);
  auto taken = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return enqueue(stream, [=] { write_device(to, taken->data(), bytes); }, false);
}

Result cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyDtoHAsync_v2, true);
  if (!bytes) return kSuccess;
  return enqueue(stream, [=] { read_device(to, from, bytes); }, !pinned(to, bytes));
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream stream) {
  ENTER(cuMemcpyDtoDAsync_v2, true);
  if (!bytes) return kSuccess;
  return enqueue(stream, [=] {
    Allocation &a = checked(to, bytes, "a copy on the device, to its target,"), &b = checked(from, bytes, "a copy on the device, from its source,");
    if (to < from + bytes && from < to + bytes) fault(kIllegalAddress, "a copy on the device between places that overlap");
    std::memcpy(a.data + (to - a.base), b.data + (from - b.base), bytes);
    std::memcpy(a.valid.data() + (to - a.base), b.valid.data() + (from - b.base), bytes);
  }, false);
}

Result cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, Stream stream) {
  ENTER(cuMemsetD8Async, true);
  if (!bytes) return kSuccess;
  return enqueue(stream, [=] {
    Allocation& a = checked(to, bytes, "a filling");
    std::memset(a.data + (to - a.base), value, bytes);
    std::memset(a.valid.data() + (to - a.base), 1, bytes);
  }, false);
}

Result cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc, true);
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return kOutOfMemory;
  driver().host[*memory] = bytes;
  return kSuccess;
}

Result cuMemFreeHost(void* memory) {
  ENTER(cuMemFreeHost, false);
  if (!driver().host.count(memory)) return kInvalidValue;
  drain_all();
  driver().host.erase(memory);
  std::free(memory);
  return driver().broken;
}

Result cuPointerGetAttribute(void* value, PointerAttribute attribute, Address address) {
  ENTER(cuPointerGetAttribute, false);
  Device* device = owner_of(address);
  Allocation* a = device ? device->memory.find(address) : nullptr;
  if (!a || address - a->base >= a->bytes || !a->live) return kInvalidValue;
  if (attribute == kPointerMemoryType) {
    unsigned type = kMemoryDevice;
    std::memcpy(value, &type, sizeof(type));
  } else if (attribute == kPointerDeviceOrdinal) {
    std::memcpy(value, &device->ordinal, sizeof(int));
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

}  // extern "C"
