// Host memory that a device copies from and to by itself, kept for use again: cuMemHostAlloc is slow.
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
  // When `until` is past, others may have it; at once without.
  void give(Pinned block, MomentRef until = nullptr);
  void release();  // all that nobody uses, back to the system; with the context
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

// For copies on a stream, of which it is given back after the last one.
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
