// A run of machine code without Python: without host calls, and not under guard.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "stopping.h"

namespace stablexla {

extern char nothing[64];  // the address of zero-sized arrays: valid, never dereferenced

// What a program is made of.
struct PlainCode {
  std::string name;
  Entry entry = nullptr;
  bool flush_denormals = false;
  std::size_t arena_bytes = 0;
  std::vector<void*> constants;
};

// Runs a program on its buffers: parameters, constants, results, and a place for the arena, which is taken from the pool.
// Returns why it ended before its time: there is no memory, or the run that it is inside of is to end. `device` is the
// one of several that runs on this thread, which is the calling one's for the first of them.
Ending run_plain(const PlainCode& code, std::vector<void*>& buffers, RunControl& control, Device* device = nullptr,
                 bool is_caller = true);

}  // namespace stablexla
