// Memory of a device, taken and given back in the order of a stream: by the driver's pool, or by a list of our own
// where the driver has none.
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

constexpr std::size_t kAlignment = 256;  // of all that is taken; parameters need 16
constexpr std::size_t kParameterAlignment = 16;
constexpr cuda::Address kNothing = kAlignment;  // where an array without elements is; never used

struct OutOfMemory : Error {
  using Error::Error;
};

class Memory {
 public:
  explicit Memory(Device& device);

  // These are called with the context. `take` throws OutOfMemory; `purpose` is for what it says.
  cuda::Address take(std::size_t bytes, const Stream& stream, const std::string& purpose);
  void give(cuda::Address address, std::size_t bytes, const StreamRef& stream) noexcept;
  void release();  // waits until the device has nothing to do; then all that nobody uses goes back

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

// Memory that arrays share. It goes when the last of them does, after all that still uses it.
class Block {
 public:
  Block(Device& device, cuda::Address address, std::size_t bytes, StreamRef home)
      : device(device), address(address), bytes(bytes), home(std::move(home)) {}
  // Somebody else's memory, whose owner lives as long as it is used.
  Block(Device& device, cuda::Address address, std::size_t bytes, StreamRef home, nb::object owner)
      : device(device), address(address), bytes(bytes), home(std::move(home)), owner(std::move(owner)) {}
  ~Block();  // with the GIL
  Block(const Block&) = delete;

  // The rest is under the GIL.
  void note_use(const MomentRef& moment);   // by a program on any stream
  void note_foreign_use(cuda::Stream stream);  // by others, who are done on the host's side

  Device& device;
  const cuda::Address address;
  const std::size_t bytes;
  const StreamRef home;  // what is given back there is given back after all that was queued there before
  nb::object owner;
  MomentRef written;               // when its elements are there; null when they are
  std::vector<MomentRef> uses;     // on other streams
  bool is_used_by_others = false;  // on streams that may be gone
};
using BlockRef = std::shared_ptr<Block>;

// Waits for all work on the device, with its context. Others may run Python meanwhile: that work may wait for them.
void wait_for_all(Device& device);

// Keeps a Python object until a moment. Both under the GIL.
void keep_until(MomentRef moment, nb::object object);
void let_go();  // of those whose moment is past

// Does something with the device's context and without the GIL; where there is no memory, once more after all was given
// back that nobody uses. `work` takes the ReleasedGil; it must have done nothing when it throws OutOfMemory.
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
