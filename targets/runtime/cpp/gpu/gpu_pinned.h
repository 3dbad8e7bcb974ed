// Pool of pinned (page-locked) host memory, for copies by the device's DMA: cuMemHostAlloc is slow.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "gpu_device.h"

namespace stablexla::gpu {

struct Pinned {
  void* data = nullptr;
  std::size_t bytes = 0;  // a power of two
};

class PinnedMemory {
 public:
  explicit PinnedMemory(Device& device) : device_(device) {}

  Pinned take(std::size_t bytes);  // with the context; throws Error
  // Returns it to the pool, for reuse when `until` is past; at once without.
  void give(Pinned block, MomentRef until = nullptr);
  void release();  // frees all unused blocks; with the context
  std::size_t held() const;

 private:
  void sweep();

  struct Used {
    Pinned block;
    MomentRef until;
  };

  Device& device_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::vector<Used> used_;
  std::size_t free_bytes_ = 0;
};

// Pinned memory for copies on a stream, returned to the pool after the last one.
class PinnedScope {
 public:
  PinnedScope(StreamRef stream, std::size_t bytes) : stream_(std::move(stream)) {
    if (bytes != 0) block_ = stream_->device.pinned().take(bytes);
  }
  ~PinnedScope() {
    if (block_.data == nullptr) return;
    stream_->device.pinned().give(block_, stream_->device.record_or_wait(stream_));
  }
  PinnedScope(const PinnedScope&) = delete;
  char* data() const { return static_cast<char*>(block_.data); }

 private:
  StreamRef stream_;
  Pinned block_;
};

}  // namespace stablexla::gpu
