// A run of machine code without Python: for one device and without host calls.
#pragma once

#include <cstddef>

#include "stopping.h"

namespace stablexla {

extern char nothing[64];  // the address of zero-sized arrays: valid, never dereferenced

// Runs a program on its buffers: parameters, constants, results, and a place for the arena, which is taken from the pool.
// Returns why it ended before its time: there is no memory, or the run that it is inside of is to end.
Ending run_plain(Entry entry, bool flush_denormals, void** buffers, std::size_t count, std::size_t arena_bytes,
                 RunControl& control);

}  // namespace stablexla
