// Blocked reduction over a group's members: in their order, in blocks.
//
// Sums of many members stay accurate: rounding errors grow with the block's size plus the number of blocks. The order
// depends on the number of members alone.
#pragma once

#include <algorithm>

namespace stablexla {

constexpr int kFoldBlock = 32;  // members of a block

// `start(i, to)` copies member i to `to`; `add(total, i)` combines member i into an accumulator; `join(total, block)`
// combines two accumulators. Leaves the result in `total`; `block` is workspace.
template <class Total, class Start, class Add, class Join>
void fold_members(int members, Total total, Total block, Start start, Add add, Join join) {
  for (int first = 0; first < members; first += kFoldBlock) {
    const Total to = first == 0 ? total : block;
    start(first, to);
    for (int i = first + 1; i < std::min(first + kFoldBlock, members); ++i) add(to, i);
    if (first != 0) join(total, block);
  }
}

}  // namespace stablexla
