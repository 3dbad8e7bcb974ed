#include "standalone.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

#include "blas_threads.h"
#include "float_mode.h"
#include "memory_pool.h"
#include "random_key.h"
#include "system.h"
#include "thread_pool.h"
#include "tile_permission.h"

namespace stablexla {
namespace {

constexpr std::uintptr_t kAlignment = 64;  // of results and of the arena

bool is_aligned(const void* pointer, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) == 0;
}

// Memory of the pool, for the duration of one run.
class Scratch {
 public:
  ~Scratch() {
    for (Block block : blocks_) release_block(block);
  }
  void* take(std::int64_t bytes) {
    Block block = acquire_block(static_cast<std::size_t>(bytes));
    if (block.data != nullptr) blocks_.push_back(block);
    return block.data;
  }

 private:
  std::vector<Block> blocks_;
};

std::atomic<std::uint64_t>& seed() {
  static std::atomic<std::uint64_t> number = [] {
    try {
      std::random_device device;
      return std::uint64_t(device()) << 32 | device();
    } catch (...) {  // the callers are in C
      return std::uint64_t(std::chrono::system_clock::now().time_since_epoch().count());
    }
  }();
  return number;
}
std::atomic<std::uint64_t> drawn{0};

void prepare() {
  ask_for_tiles();
  static std::once_flag once;
  std::call_once(once, [] {
    const OpenBlas blas = linked_openblas();
    if (blas.get_num_threads != nullptr && blas.set_num_threads != nullptr)
      set_blas_functions(reinterpret_cast<std::uintptr_t>(blas.get_num_threads),
                         reinterpret_cast<std::uintptr_t>(blas.set_num_threads));
    const char* text = variable("STABLEXLA_NUM_THREADS");
    if (text == nullptr || *text == 0) return;
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    if (*end == 0 && count >= 1 && count <= 1024)
      set_num_threads(static_cast<int>(count));
    else
      std::fprintf(stderr, "STABLEXLA_NUM_THREADS is no number of threads, from 1 to 1024, and is not used\n");
  });
}

int run(const stablexla_program& program, const void* const* arguments, void* const* results) {
  if ((arguments == nullptr && program.parameters > 0) || (results == nullptr && program.results > 0)) return 1;
  std::vector<void*> buffers;
  buffers.reserve(program.parameters + program.constants + program.results + 1);
  for (std::int64_t i = 0; i < program.parameters; ++i) {
    if (arguments[i] == nullptr) return 1;
    if (!is_aligned(arguments[i], program.parameter_alignments[i])) return 2;
    buffers.push_back(const_cast<void*>(arguments[i]));
  }
  for (std::int64_t i = 0; i < program.constants; ++i) buffers.push_back(const_cast<void*>(program.constant_data[i]));
  Scratch scratch;
  for (std::int64_t i = 0; i < program.results; ++i) {
    if (results[i] == nullptr) return 1;
    buffers.push_back(is_aligned(results[i], kAlignment) ? results[i] : scratch.take(program.result_bytes[i]));
    if (buffers.back() == nullptr) return 3;
  }
  buffers.push_back(scratch.take(program.arena_bytes));
  if (buffers.back() == nullptr) return 3;
  {
    FloatScope scope(program_float_state(program.flush_denormals != 0));
    program.run(buffers.data());
  }
  for (std::int64_t i = 0; i < program.results; ++i) {
    void* made = buffers[program.parameters + program.constants + i];
    if (made != results[i]) std::memcpy(results[i], made, static_cast<std::size_t>(program.result_bytes[i]));
  }
  return 0;
}

// An array of any strides, as MLIR passes it.
struct Strided {
  char *allocated, *aligned;
  std::int64_t offset;
  std::int64_t numbers[];  // sizes, then strides
};
struct Unranked {
  std::int64_t rank;
  const Strided* array;
};

void copy_strided(std::int64_t rank, const std::int64_t* sizes, const std::int64_t* from_strides,
                  const std::int64_t* to_strides, const char* from, char* to, std::int64_t bytes) {
  if (rank == 0) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    copy_strided(rank - 1, sizes + 1, from_strides + 1, to_strides + 1, from + i * from_strides[0] * bytes,
                 to + i * to_strides[0] * bytes, bytes);
}

}  // namespace
}  // namespace stablexla

extern "C" int stablexla_run_program(const stablexla_program* program, const void* const* arguments,
                                     void* const* results) {
  try {
    stablexla::prepare();
    return stablexla::run(*program, arguments, results);
  } catch (...) {
    return 3;
  }
}

extern "C" void stablexla_seed_programs(std::uint64_t number) {
  stablexla::seed() = number;
  stablexla::drawn = 0;
}

extern "C" int stablexla_use_threads(int count) {
  try {
    stablexla::prepare();
    return count >= 1 && count <= 1024 && stablexla::set_num_threads(count) ? 0 : 1;
  } catch (...) {
    return 1;
  }
}

extern "C" std::uint64_t stablexla_next_random_key() {
  return stablexla::random_key(stablexla::seed(), stablexla::drawn.fetch_add(1));
}

// From MLIR's own runtime, for copies of strided arrays.
extern "C" void memrefCopy(std::int64_t bytes, const void* from, const void* to) {
  const auto* given = static_cast<const stablexla::Unranked*>(from);
  const std::int64_t rank = given->rank;
  const stablexla::Strided &a = *given->array, &b = *static_cast<const stablexla::Unranked*>(to)->array;
  stablexla::copy_strided(rank, a.numbers, a.numbers + rank, b.numbers + rank, a.aligned + a.offset * bytes,
                          b.aligned + b.offset * bytes, bytes);
}
