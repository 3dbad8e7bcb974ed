// Products of a warpgroup that are computed when they are waited for, and no sooner.
#pragma once

#include <deque>
#include <vector>

#include "machine.h"

namespace simulator {

struct WarpgroupProduct {
  const Instruction* i = nullptr;
  std::uint64_t a = 0, b = 0;       // descriptors
  std::vector<std::uint32_t> rows;  // A from registers, as they were: [register][lane]
  bool scale = true;                // whether D is added
};

// Sums that are on their way: their registers hold rubbish until they are waited for.
struct Accumulators {
  std::vector<std::uint32_t> values;  // [register][lane]
  int pending = 0;
};

struct WarpgroupProducts {
  std::vector<WarpgroupProduct> open;
  std::deque<std::vector<WarpgroupProduct>> groups;
  std::map<std::uint32_t, Accumulators> sums;  // by the place of the first register
  bool fenced = false;
};

// When a block ends.
void finish_products(Warp& w);

}  // namespace simulator
