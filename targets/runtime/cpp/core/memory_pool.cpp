#include "memory_pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <vector>

namespace stablexla {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kMostBytes = std::size_t(1) << 48;  // more than any address space
constexpr std::size_t kMapFrom = std::size_t(1) << 20;  // blocks of this size or more come from mmap

// Four size classes to each power of two: 64, 80 -> 128, 128, 160 -> 192 ... ; a block is at most a quarter too big.
// Below 256 bytes every class is a multiple of the alignment.
std::uint32_t class_of(std::size_t bytes) {
  const std::size_t units = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment;
  if (units <= 4) return static_cast<std::uint32_t>(units - 1);
  const int log = 63 - __builtin_clzll(units - 1);  // units in (2^log, 2^(log+1)]
  const std::size_t quarter = std::size_t(1) << (log - 2);
  const std::size_t step = (units - (std::size_t(1) << log) + quarter - 1) / quarter;  // 1 to 4
  return static_cast<std::uint32_t>(4 * (log - 1) + step - 1);
}

std::size_t class_bytes(std::uint32_t size_class) {
  if (size_class < 4) return (size_class + 1) * kAlignment;
  const int log = static_cast<int>(size_class / 4) + 1;
  return ((std::size_t(1) << log) + (size_class % 4 + 1) * (std::size_t(1) << (log - 2))) * kAlignment;
}

constexpr std::uint32_t kClasses = 4 * 56;

// Huge pages avoid most page faults of a first use, when the block is aligned to their size.
void* map_block(std::size_t bytes) {
  const std::size_t padded = bytes + kHugePage;
  void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const auto data = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (data > start) munmap(raw, data - start);
  munmap(reinterpret_cast<void*>(data + bytes), start + padded - (data + bytes));
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(data), bytes, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(data);
}

void* system_allocate(std::size_t bytes) {
  return bytes >= kMapFrom ? map_block(bytes) : std::aligned_alloc(kAlignment, bytes);
}

void system_free(void* data, std::size_t bytes) {
  if (bytes >= kMapFrom)
    munmap(data, bytes);
  else
    std::free(data);
}

std::size_t default_limit() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  const std::size_t gigabyte = std::size_t(1) << 30;
  if (pages <= 0 || page <= 0) return gigabyte;
  return std::min(gigabyte, static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 4);
}

class MemoryPool {
 public:
  Block acquire(std::size_t bytes) {
    if (bytes > kMostBytes) return {};
    const std::uint32_t size_class = class_of(bytes);
    const std::size_t size = class_bytes(size_class);
    void* data = reuse(size_class, size);
    if (data == nullptr) data = allocate(size);
    const int fill = fill_.load(std::memory_order_relaxed);
    if (fill >= 0 && data != nullptr) std::memset(data, fill, size);
    return {data, size_class};
  }

  void release(Block block) {
    const std::size_t size = class_bytes(block.size_class);
    std::unique_lock<std::mutex> lock(mutex_);
    stats_.in_use_bytes -= size;
    --stats_.in_use_blocks;
    if (size <= stats_.limit_bytes && keep(block, size)) return;
    lock.unlock();
    system_free(block.data, size);
  }

  void trim() {
    std::lock_guard<std::mutex> lock(mutex_);
    make_room(0);
  }

  void set_limit(std::size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.limit_bytes = bytes;
    make_room(bytes);
  }

  void set_memory_limit(std::size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.memory_limit_bytes = bytes;
    unasked_bytes.store(bytes == SIZE_MAX ? kSmallBytes : 0, std::memory_order_relaxed);
    make_room(bytes - std::min(bytes, stats_.in_use_bytes));
  }

  void set_fill(int byte) { fill_.store(byte, std::memory_order_relaxed); }

  PoolStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void forget_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.peak_bytes = stats_.in_use_bytes;
  }

  std::mutex& mutex() { return mutex_; }

 private:
  void* reuse(std::uint32_t size_class, std::size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& blocks = free_[size_class];
    if (blocks.empty()) return nullptr;
    void* data = blocks.back();
    blocks.pop_back();
    stats_.cached_bytes -= size;
    --stats_.cached_blocks;
    stats_.in_use_bytes += size;
    ++stats_.in_use_blocks;
    ++stats_.reused;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    return data;
  }

  void* allocate(std::size_t size) {
    if (!reserve(size)) return nullptr;
    void* data = system_allocate(size);
    if (data == nullptr) {
      trim();
      data = system_allocate(size);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (data == nullptr) {
      stats_.in_use_bytes -= size;
      return nullptr;
    }
    ++stats_.in_use_blocks;
    ++stats_.allocated;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    return data;
  }

  // Counts a new block as used, and evicts cached ones for it; false where the limit of memory does not allow it.
  bool reserve(std::size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t limit = stats_.memory_limit_bytes;
    if (size > limit || stats_.in_use_bytes > limit - size) return false;
    make_room(limit - size - stats_.in_use_bytes);
    stats_.in_use_bytes += size;
    return true;
  }

  // Caches a block; false where the limit of memory does not allow it, or the list of its class cannot grow. The mutex
  // is held.
  bool keep(Block block, std::size_t size) {
    const std::size_t limit = stats_.memory_limit_bytes;
    if (stats_.in_use_bytes > limit || size > limit - stats_.in_use_bytes) return false;
    make_room(std::min(stats_.limit_bytes, limit - stats_.in_use_bytes) - size);
    try {
      free_[block.size_class].push_back(block.data);
    } catch (const std::bad_alloc&) {  // the callers are destructors
      return false;
    }
    stats_.cached_bytes += size;
    ++stats_.cached_blocks;
    return true;
  }

  // Evicts cached blocks, the biggest first, until at most `bytes` are cached. The mutex is held.
  void make_room(std::size_t bytes) {
    for (std::uint32_t i = kClasses; stats_.cached_bytes > bytes && i-- > 0;) {
      std::vector<void*>& blocks = free_[i];
      while (!blocks.empty() && stats_.cached_bytes > bytes) {
        system_free(blocks.back(), class_bytes(i));
        blocks.pop_back();
        stats_.cached_bytes -= class_bytes(i);
        --stats_.cached_blocks;
      }
    }
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  PoolStats stats_{0, 0, 0, 0, default_limit(), std::numeric_limits<std::size_t>::max(), 0, 0, 0};
  std::atomic<int> fill_{-1};
};

// Leaked on purpose: arrays may die after static destruction.
MemoryPool& pool() {
  static MemoryPool* the_pool = [] {
    auto* made = new MemoryPool;
    // a child of fork must not inherit the lock held by another thread of its parent
    pthread_atfork([] { pool().mutex().lock(); }, [] { pool().mutex().unlock(); }, [] { pool().mutex().unlock(); });
    return made;
  }();
  return *the_pool;
}

}  // namespace

std::atomic<std::size_t> unasked_bytes{kSmallBytes};

Block acquire_block(std::size_t bytes) { return pool().acquire(bytes); }
void release_block(Block block) { pool().release(block); }
PoolStats pool_stats() { return pool().stats(); }
void forget_peak() { pool().forget_peak(); }
void trim_pool() { pool().trim(); }
void set_pool_limit(std::size_t bytes) { pool().set_limit(bytes); }
void set_memory_limit(std::size_t bytes) { pool().set_memory_limit(bytes); }
std::size_t block_bytes(std::size_t bytes) { return bytes > kMostBytes ? bytes : class_bytes(class_of(bytes)); }

void set_pool_fill(int byte) { pool().set_fill(byte); }

}  // namespace stablexla
