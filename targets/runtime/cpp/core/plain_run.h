// A run of machine code without Python: host calls are those of FFI handlers alone, and it is not under guard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stopping.h"

namespace stablexla {

class FfiCall;

extern char nothing[64];  // the address of zero-sized arrays: valid, never dereferenced

// What a program is made of.
struct PlainCode {
  std::string name;
  Entry entry = nullptr;
  bool flush_denormals = false;
  std::size_t arena_bytes = 0;
  std::vector<void*> constants;
  std::vector<std::shared_ptr<FfiCall>> calls;  // by their numbers in the code
};

// Why a run ended before its time; `said` has the words for kDevices and kFailed.
struct PlainEnd {
  Ending why = Ending::kNone;
  std::string said;
};

// Runs a program on its buffers: parameters, constants, results, and a place for the arena, which is taken from the pool.
// Returns why it ended before its time: there is no memory, the run that it is inside of is to end, or a handler failed.
// `device` is the one of several that runs on this thread, which is the calling one's for the first of them.
PlainEnd run_plain(const PlainCode& code, std::vector<void*>& buffers, RunControl& control, Device* device = nullptr,
                   bool is_caller = true);

// Calls the handler of that number of this thread's program, which is left where the handler fails.
void call_handler(std::int64_t number, void** outputs, void** inputs);

}  // namespace stablexla
