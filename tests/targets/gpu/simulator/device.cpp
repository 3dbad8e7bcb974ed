// Memory of a device: a window of addresses that nobody may touch, and what lies behind it.
#include "device.h"

#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

namespace simulator {

DeviceMemory::DeviceMemory() {
  void* window = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* backing = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (window == MAP_FAILED || backing == MAP_FAILED) throw std::runtime_error("no addresses for a device's memory");
  window_ = next_ = reinterpret_cast<std::uint64_t>(window);
  backing_ = static_cast<std::uint8_t*>(backing);
}

std::uint64_t DeviceMemory::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > limit || allocated_ > limit - bytes || next_ + bytes + 4096 > window_ + kBytes) return 0;
  Allocation a;
  a.base = next_;
  a.bytes = bytes;
  a.data = data(next_);
  a.valid.resize(bytes);
  std::memset(a.data, 0xcb, bytes);
  next_ += (bytes + 511) / 256 * 256;  // with a gap behind it; addresses are not used again
  allocated_ += bytes;
  largest_ = std::max(largest_, allocated_);
  last_ = nullptr;
  std::uint64_t base = a.base;
  all_[base] = std::move(a);
  return base;
}

bool DeviceMemory::release(std::uint64_t address) {
  auto found = all_.find(address);
  if (found == all_.end() || !found->second.live) return false;
  Allocation& a = found->second;
  a.live = false;
  a.valid = {};
  a.shadow = {};
  allocated_ -= a.bytes;
  auto begin = (reinterpret_cast<std::uintptr_t>(a.data) + 4095) / 4096 * 4096;
  auto end = (reinterpret_cast<std::uintptr_t>(a.data) + a.bytes) / 4096 * 4096;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  return true;
}

Allocation* DeviceMemory::find(std::uint64_t address) {
  if (last_ && address - last_->base < last_->bytes) return last_;
  auto after = all_.upper_bound(address);
  if (after == all_.begin()) return nullptr;
  return last_ = &std::prev(after)->second;
}

void DeviceMemory::reset() {
  all_.clear();
  last_ = nullptr;
  allocated_ = largest_ = 0;
}

}  // namespace simulator
