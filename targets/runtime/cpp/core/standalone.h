// The runtime of a program compiled to a C function in a library, without Python.
#pragma once

#include <cstdint>

extern "C" {

// Written by `targets/llvm/standalone.py`.
struct stablexla_program {
  void (*run)(void** buffers);  // the buffers: parameters, constants, results, the arena
  std::int64_t parameters, constants, results, arena_bytes, flush_denormals;
  const std::int64_t* parameter_alignments;
  const std::int64_t* result_bytes;
  const void* const* constant_data;
};

// 0, or why it did not run: 1 a null pointer, 2 an argument that is not aligned to its elements, 3 the
// system gives no memory or no threads. No exception reaches the caller.
int stablexla_run_program(const stablexla_program* program, const void* const* arguments, void* const* results);
void stablexla_seed_programs(std::uint64_t number);
int stablexla_use_threads(int count);

// What machine code calls.
std::uint64_t stablexla_next_random_key();
void memrefCopy(std::int64_t bytes, const void* from, const void* to);  // arrays of any strides, as MLIR passes them
}
