// DLPack's ABI, as far as it is used here; written from its documentation.
#pragma once

#include <cstdint>

namespace stablexla::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

struct Device {
  std::int32_t type;
  std::int32_t number;
};

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
  bool operator==(const DataType& other) const {
    return code == other.code && bits == other.bits && lanes == other.lanes;
  }
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null for row-major order
  std::uint64_t byte_offset;
};

// In a capsule named "dltensor", which its consumer renames to "used_dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};

struct Version {
  std::uint32_t major, minor;
};

constexpr std::uint64_t kReadOnly = 1;

// In a capsule named "dltensor_versioned", which its consumer renames to "used_dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;
  Tensor tensor;
};

}  // namespace stablexla::dlpack
