// Stream-ordered allocation of device memory: by the driver's pool, or by an own free list where the driver has none.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <nanobind/nanobind.h>

#include "gpu_device.h"
#include "released_gil.h"

namespace stablexla::gpu {

namespace nb = nanobind;

constexpr std::size_t kAlignment = 256;  // of all allocations; kernels' parameters need 16
constexpr std::size_t kParameterAlignment = 16;
constexpr cuda::Address kNothing = kAlignment;  // the address of arrays without elements; never dereferenced

struct OutOfMemory : Error {
  using Error::Error;
};

class Memory {
 public:
  explicit Memory(Device& device);

  // These are called with the context. `take` throws OutOfMemory; `purpose` is for its message.
  cuda::Address take(std::size_t bytes, const Stream& stream, const std::string& purpose);
  void give(cuda::Address address, std::size_t bytes, const StreamRef& stream) noexcept;
  void release();  // synchronizes the device, then frees all unused memory

  struct Stats {
    std::size_t in_use, blocks, peak, held, free, total;
  };
  Stats stats() const;

 private:
  struct Free {
    cuda::Address address;
    MomentRef since;
  };

  cuda::Address take_listed(std::size_t size, const Stream& stream, cuda::Result* result);
  void count(std::size_t bytes);

  Device& device_;
  cuda::MemoryPool pool_ = nullptr;
  std::mutex mutex_;
  std::multimap<std::size_t, Free> free_;
  std::atomic<std::size_t> in_use_{0}, blocks_{0}, peak_{0}, listed_{0};
};

// Device memory shared by arrays. Freed with the last of them, ordered after all its pending uses.
class Block {
 public:
  Block(Device& device, cuda::Address address, std::size_t bytes, StreamRef home)
      : device(device), address(address), bytes(bytes), home(std::move(home)) {}
  // Foreign memory, whose owner is kept alive as long as it is used.
  Block(Device& device, cuda::Address address, std::size_t bytes, StreamRef home, nb::object owner)
      : device(device), address(address), bytes(bytes), home(std::move(home)), owner(std::move(owner)) {}
  ~Block();  // with the GIL
  Block(const Block&) = delete;

  // The rest requires the GIL.
  void note_use(const MomentRef& moment);   // by a program on any stream
  void note_foreign_use(cuda::Stream stream);  // by other libraries, which have released it on the host

  Device& device;
  const cuda::Address address;
  const std::size_t bytes;
  const StreamRef home;  // the stream whose order it is freed in
  nb::object owner;
  MomentRef written;               // when its elements are computed; null when they are
  std::vector<MomentRef> uses;     // on other streams
  bool is_used_by_others = false;  // on streams that may be destroyed
};
using BlockRef = std::shared_ptr<Block>;

// Synchronizes the device, with its context. Releases the GIL meanwhile: that work may wait for Python threads.
void wait_for_all(Device& device);

// Keeps a Python object alive until a moment. Both require the GIL.
void keep_until(MomentRef moment, nb::object object);
void let_go();  // drops those whose moment is past

// Calls `work` with the device's context and without the GIL; on OutOfMemory, once more after all unused memory was
// freed. `work` takes the ReleasedGil; it must have no effects when it throws OutOfMemory.
template <typename Work>
void with_memory(Device& device, Work work) {
  for (int attempt = 0;; ++attempt) {
    try {
      ReleasedGil released;
      ContextScope scope(device);
      return work(released);
    } catch (const OutOfMemory&) {
      if (attempt > 0) throw;
    }
    let_go();
    ReleasedGil released;
    ContextScope scope(device);
    device.memory().release();
  }
}

}  // namespace stablexla::gpu
