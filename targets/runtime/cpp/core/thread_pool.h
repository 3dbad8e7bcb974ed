// Thread pool of machine code: one entry point, the parallel-for `stablexla_parallel_for`, found by its C name.
#pragma once

#include <cstdint>

extern "C" {
// Calls body(ctx, lo, hi) so that the ranges [lo, hi) cover [0, n) exactly once; every lo is a multiple of `grain`.
// Returns when all of it is done. The calling thread takes part, and waits for nothing but its own chunks: regions of
// several threads share the workers evenly. With one thread, for n <= grain, inside another parallel region, or where no
// worker is left, the caller does everything itself.
__attribute__((visibility("default"))) void stablexla_parallel_for(
    void (*body)(void* ctx, std::int64_t lo, std::int64_t hi), void* ctx, std::int64_t n, std::int64_t grain);
}

namespace stablexla {

int default_num_threads();  // CPUs that this process may run on, or as many as its control group lets it use
int num_threads();
bool set_num_threads(int count);  // waits for a running region; false inside one, where it can't be done

}  // namespace stablexla
