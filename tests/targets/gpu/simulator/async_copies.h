// Copies into shared memory that arrive when they are waited for, and no sooner.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "machine.h"

namespace simulator {

struct AsyncCopy {
  std::uint64_t to = 0, from = 0;
  int bytes = 0, filled = 0;  // the rest of the bytes is zeros
};

struct AsyncCopies {
  std::vector<AsyncCopy> open[kLanes];                    // not in a group yet
  std::deque<std::vector<AsyncCopy>> groups[kLanes];      // the oldest first
};

// When a block ends.
void finish_copies(Warp& w);

}  // namespace simulator
