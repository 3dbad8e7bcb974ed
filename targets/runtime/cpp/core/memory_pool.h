// Memory pool for results and arenas: 64-byte aligned blocks, reused by size class, thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stablexla {

struct Block {
  void* data = nullptr;
  std::uint32_t size_class = 0;
};

struct PoolStats {
  std::size_t in_use_bytes, in_use_blocks, cached_bytes, cached_blocks;
  std::size_t limit_bytes;         // of cached blocks
  std::size_t memory_limit_bytes;  // of all blocks; the largest number where there is none
  std::uint64_t reused, allocated;
  std::size_t peak_bytes;  // the most that was in use at once
};

Block acquire_block(std::size_t bytes);  // data is null when there is no memory
void release_block(Block block);

PoolStats pool_stats();
void forget_peak();  // the most in use is what is in use now
void trim_pool();  // frees all cached memory
void set_pool_limit(std::size_t bytes);
void set_memory_limit(std::size_t bytes);
std::size_t block_bytes(std::size_t bytes);  // the size of the block for so many bytes

// A run that takes more asks first whether there is so much: `kSmallBytes`, or nothing where memory has a limit.
extern std::atomic<std::size_t> unasked_bytes;
constexpr std::size_t kSmallBytes = std::size_t(64) << 20;
void set_pool_fill(int byte);  // fills every block with it before it is handed out; -1 leaves blocks as they are

}  // namespace stablexla
