#include "shared_blocks.h"

#include <mutex>
#include <unordered_map>

namespace stablexla {

namespace {

struct Shared {
  std::uint32_t size_class;
  std::size_t owners;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<void*, Shared> blocks;
};

// Leaked on purpose: arrays may die last, at the interpreter's end.
Table& table() {
  static Table* the_table = new Table;
  return *the_table;
}

}  // namespace

void share_block(Block block) {
  std::lock_guard<std::mutex> lock(table().mutex);
  table().blocks[block.data] = {block.size_class, 1};
}

bool join_block(void* data, Block* block) {
  std::lock_guard<std::mutex> lock(table().mutex);
  auto found = table().blocks.find(data);
  if (found == table().blocks.end()) return false;
  ++found->second.owners;
  *block = {data, found->second.size_class};
  return true;
}

bool is_shared(void* data) {
  std::lock_guard<std::mutex> lock(table().mutex);
  return table().blocks.count(data) != 0;
}

void leave_block(Block block) {
  {
    std::lock_guard<std::mutex> lock(table().mutex);
    auto found = table().blocks.find(block.data);
    if (--found->second.owners != 0) return;
    table().blocks.erase(found);
  }
  release_block(block);
}

}  // namespace stablexla
