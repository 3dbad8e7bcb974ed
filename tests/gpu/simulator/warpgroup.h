// Products of a warpgroup that are computed when they are waited for, and no sooner.
#pragma once

#include <deque>
#include <vector>

#include "machine.h"

namespace simulator {

struct WarpgroupProduct {
  const Instruction* i = nullptr;
  std::uint64_t a = 0, b = 0;      // descriptors
  std::vector<std::uint32_t> rows;  // A from registers, as they were: [register][lane]
  bool scale = true;
};

struct WarpgroupProducts {
  std::vector<WarpgroupProduct> open;
  std::deque<std::vector<WarpgroupProduct>> groups;
  bool fenced = false;
};

void finish_products(Warp& w);

}  // namespace simulator
