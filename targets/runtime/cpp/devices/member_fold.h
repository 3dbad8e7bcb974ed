// Folding the arrays of a group's members: in their order, with parentheses around blocks of them.
//
// Sums of many members keep their digits so: each is rounded as often as a block has members and there are blocks. What
// it comes to depends on the number of members alone.
#pragma once

#include <algorithm>

namespace stablexla {

constexpr int kFoldBlock = 32;  // members of a block

// `start(i, to)` puts member i where `to` says; `add(total, i)` folds member i into a total; `join(total, block)` folds
// one total into another. Leaves the fold of all in `total`, and uses `block`.
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
