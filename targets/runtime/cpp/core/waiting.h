// Waiting on a word: spin for a moment, then sleep on a futex until it changes.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

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

using Word = std::atomic<std::uint32_t>;

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

// Sleeps while the word is unchanged, and at most so long; may return early.
inline void futex_wait(Word& word, std::uint32_t seen, const timespec* limit = nullptr) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, limit, nullptr, 0);
}

inline void futex_wait(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit.count() <= 0) return;
  const timespec time{static_cast<time_t>(limit.count() / 1000000000), static_cast<long>(limit.count() % 1000000000)};
  futex_wait(word, seen, &time);
}

inline void futex_wake(Word& word, int count) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace stablexla
