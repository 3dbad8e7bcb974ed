// Profiling marks of instrumented programs: `stablexla_mark(n)` records that this thread passed mark n now. Without an
// active profile, a mark does nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

extern "C" {
__attribute__((visibility("default"))) void stablexla_mark(std::int64_t number);
}

namespace stablexla {

struct ThreadMarks {
  int thread;         // from 0, in the order in which threads passed their first mark
  std::string pairs;  // mark and nanoseconds, both std::int64_t, one after the other
};

void begin_profile();
std::vector<ThreadMarks> end_profile();  // the marks recorded since; no profiled program may be running

}  // namespace stablexla
