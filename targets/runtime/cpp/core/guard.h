// Runs under guard: each array lies on pages of its own, between two that nobody may touch, and the rest of its pages
// holds canaries. Temporaries of the arena too, where the program was compiled under guard (`STABLEXLA_GUARD`).
// It knows which kernel runs; guard_faults.cpp is told of accesses that the processor refuses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

// What `main` of a program that was compiled under guard calls; a run without a guard ignores it. Numbers are those of
// the program's `places`.
extern "C" {
__attribute__((visibility("default"))) void stablexla_guard_array(std::int64_t address, std::int64_t bytes,
                                                                  std::int64_t number);
__attribute__((visibility("default"))) void stablexla_guard_fill(std::int64_t address, std::int64_t bytes);
__attribute__((visibility("default"))) void stablexla_guard_kernel(std::int64_t number);
__attribute__((visibility("default"))) void stablexla_guard_check(std::int64_t number);
}

namespace stablexla {

// Which end of an array meets the forbidden page; at the other one it is up to a page of canaries away.
enum class GuardedEnd : int { kNone, kEnds, kStarts };

enum class GuardedRole : int { kParameter, kConstant, kResult, kArena, kTemporary };

enum class Access : int { kRead, kWrite, kUnknown };

// An access outside of all arrays, or one that is not allowed, and the array that is nearest.
struct Outside {
  std::int64_t kernel = -1;  // -1 where main itself did it, or the program does not say
  Access access = Access::kUnknown;
  bool is_near = false;  // whether there is an array within reach
  GuardedRole role = GuardedRole::kArena;
  std::int64_t number = 0;
  std::size_t bytes = 0;     // of the array
  std::int64_t offset = 0;   // of the access in it
  std::uintptr_t address = 0;
};

class Guard {
 public:
  explicit Guard(GuardedEnd end) : end_(end) {}
  ~Guard();
  Guard(const Guard&) = delete;

  // Returns the place of an array on pages of its own, null where there is no memory. It holds what is at `from`, or
  // without that the pattern of memory that was never written. A `result`'s contents are given back to that address.
  char* place(GuardedRole role, std::int64_t number, std::size_t bytes, const void* from, bool is_read_only,
              void* result = nullptr);
  // Says that an array that is placed is a result, too: its parameter was donated.
  void return_to(char* data, void* result);
  void give_back() const;

  void add_temporary(char* data, std::size_t bytes, std::int64_t number);
  void begin_kernel(std::int64_t number) { kernel_.store(number, std::memory_order_relaxed); }
  // Whether nothing was noted and all canaries are as they were; the first that is not is noted as an access.
  bool check();
  // Notes an access that the processor refused, by any thread of the run; the first is kept.
  void note(std::uintptr_t address, Access access);
  bool has(std::uintptr_t address) const;  // whether it lies on the pages of its arrays, or beside them

  bool has_found() const { return state_.load(std::memory_order_acquire) == kNoted; }
  const Outside& found() const { return found_; }

 private:
  struct Array {
    char *first, *last;  // of its pages
    char* data;
    std::size_t bytes;
    GuardedRole role;
    std::int64_t number;
    void* result;
  };
  struct Mapping {
    char* start;
    std::size_t size;
  };
  static constexpr int kNothing = 0, kNoting = 1, kNoted = 2;

  void draw(const Array& array);
  bool note(const Array* nearest, const char* address, Access access);

  GuardedEnd end_;
  bool has_temporaries_ = false;
  std::vector<Array> arrays_;
  std::vector<Mapping> mappings_;
  std::atomic<std::int64_t> kernel_{-1};
  std::atomic<int> state_{kNothing};
  Outside found_;
};

}  // namespace stablexla
