// Memory pool for results and arenas: 64-byte aligned blocks, reused by size class, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stablexla {

struct Block {
  void* data = nullptr;
  std::uint32_t size_class = 0;
};

struct PoolStats {
  std::size_t in_use_bytes, in_use_blocks, cached_bytes, cached_blocks, limit_bytes;
  std::uint64_t reused, allocated;
  std::size_t peak_bytes;  // the most that was in use at once
};

Block acquire_block(std::size_t bytes);  // data is null when there is no memory
void release_block(Block block);

PoolStats pool_stats();
void trim_pool();  // frees all cached memory
void set_pool_limit(std::size_t bytes);
void set_pool_fill(int byte);  // fills every block with it before it is handed out; -1 leaves blocks as they are

}  // namespace stablexla
