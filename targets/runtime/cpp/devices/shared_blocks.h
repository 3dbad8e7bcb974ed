// Blocks that several arrays may come to own: a result that donation made lies where an argument lay, which its caller
// may still hold. They are known by address, so that an argument is recognised however it comes back.
#pragma once

#include "memory_pool.h"

namespace stablexla {

void share_block(Block block);                // begins with one owner
bool join_block(void* data, Block* block);    // one owner more, when a shared block begins at the address
bool is_shared(void* data);                   // whether a shared block begins at the address
void leave_block(Block block);                // one owner less; the last gives the block back to the pool

}  // namespace stablexla
