// Threads for the devices of a run besides the calling one; they are kept for the next run.
#pragma once

#include <cstddef>
#include <vector>

namespace stablexla {

class DeviceThread;

// Threads of one run. They run concurrently: devices wait for each other.
class DeviceThreads {
 public:
  using Job = void (*)(void* context, std::size_t index);

  // Throws std::runtime_error when the system gives no more threads.
  explicit DeviceThreads(std::size_t count);
  ~DeviceThreads();  // their jobs must have finished
  DeviceThreads(const DeviceThreads&) = delete;

  // Calls job(context, i) for i of [0, count). With `spins` there is a core for each waiting thread.
  void start(Job job, void* context, bool spins);

 private:
  std::vector<DeviceThread*> threads_;
};

std::size_t idle_device_threads();  // that wait for a run

}  // namespace stablexla
