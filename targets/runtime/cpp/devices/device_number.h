// Which of a program's devices the running thread works for.
#pragma once

#include <cstdint>

extern "C" {
// The flat number of the device, replica * partitions + partition; 0 in a program for one device.
__attribute__((visibility("default"))) std::int64_t stablexla_device_id();
}

namespace stablexla {

extern thread_local std::int64_t device_number;

// Sets the thread's device, and restores the former one at the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(std::int64_t number) : former_(device_number) { device_number = number; }
  ~DeviceScope() { device_number = former_; }
  DeviceScope(const DeviceScope&) = delete;

 private:
  std::int64_t former_;
};

}  // namespace stablexla
