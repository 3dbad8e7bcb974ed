// Reference-counted blocks: a donated argument's memory is owned by the result too, while the caller may still hold
// the argument. They are keyed by address, so that an argument is recognised in whatever object it is passed.
#pragma once

#include "memory_pool.h"

namespace stablexla {

void share_block(Block block);                // begins with one owner
bool join_block(void* data, Block* block);    // one owner more, when a shared block begins at the address
bool is_shared(void* data);                   // whether a shared block begins at the address
void leave_block(Block block);                // one owner less; the last gives the block back to the pool

}  // namespace stablexla
