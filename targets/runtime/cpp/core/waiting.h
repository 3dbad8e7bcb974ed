// Waiting on a word: spin for a moment, then sleep until it changes.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstddef>

#include "system.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace stablexla {

// Words that different threads write stand so far apart: a cache line, or two that processors fetch together.
#if defined(__aarch64__)
constexpr std::size_t kSharingBytes = 128;
#else
constexpr std::size_t kSharingBytes = 64;
#endif

inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

// Spins until `done` is true or the time has passed; returns which.
template <typename Done>
bool spin_until(Done done, std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

// The same where there are more threads than cores: yields the core between two polls. For waits of some microseconds
// that is far cheaper than sleeping and being woken.
template <typename Done>
bool yield_until(Done done, std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    if (done()) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace stablexla
