#include "gpu_pinned.h"

#include <utility>

namespace stablexla::gpu {
namespace {

constexpr std::size_t kSmallest = 4096;
constexpr std::size_t kKept = std::size_t(256) << 20;

std::size_t rounded(std::size_t bytes) {
  std::size_t size = kSmallest;
  while (size < bytes) size *= 2;
  return size;
}

}  // namespace

Pinned PinnedMemory::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    sweep();
    std::vector<void*>& blocks = free_[size];
    if (!blocks.empty()) {
      void* data = blocks.back();
      blocks.pop_back();
      free_bytes_ -= size;
      return {data, size};
    }
  }
  Pinned block{nullptr, size};
  const char* what = "asking for host memory to copy through";
  cuda::Result result = device_.cu.cuMemHostAlloc(&block.data, size, cuda::kHostAllocPortable);
  if (result == cuda::kOutOfMemory) {
    release();
    result = device_.cu.cuMemHostAlloc(&block.data, size, cuda::kHostAllocPortable);
  }
  device_.check(result, what);
  return block;
}

void PinnedMemory::give(Pinned block, MomentRef until) {
  if (block.data == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (until != nullptr) {
    used_.push_back({block, std::move(until)});
  } else if (free_bytes_ + block.bytes > kKept && !is_forked()) {
    device_.cu.cuMemFreeHost(block.data);
  } else {
    free_[block.bytes].push_back(block.data);
    free_bytes_ += block.bytes;
  }
}

// Frees blocks whose moment has passed. The mutex is held.
void PinnedMemory::sweep() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (device_.cu.cuEventQuery(used_[i].until->event) == cuda::kNotReady) {
      std::swap(used_[kept++], used_[i]);
      continue;
    }
    free_[used_[i].block.bytes].push_back(used_[i].block.data);
    free_bytes_ += used_[i].block.bytes;
  }
  used_.resize(kept);
}

void PinnedMemory::release() {
  std::lock_guard<std::mutex> lock(mutex_);
  sweep();
  for (auto& [size, blocks] : free_)
    for (void* data : blocks) device_.cu.cuMemFreeHost(data);
  free_.clear();
  free_bytes_ = 0;
}

std::size_t PinnedMemory::held() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return free_bytes_;
}

}  // namespace stablexla::gpu
