#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu_limit.h"
#include "float_mode.h"

namespace stablexla {
namespace {

using Body = void (*)(void*, std::int64_t, std::int64_t);

// How long an idle worker looks for the next region before it sleeps: longer than the gap between two kernels of
// one program, shorter than anybody would notice as load.
constexpr std::chrono::microseconds kSpin(30);

thread_local bool inside_region = false;

inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

// Looks at `done` until it is true or kSpin has passed; says which.
template <typename Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// One region at a time. `state_` is an open flag and the number of workers inside: a worker joins only an open
// region, and the caller, when no chunk is left, closes it and waits for those that joined, not for those asleep.
class ThreadPool {
 public:
  explicit ThreadPool(int count) : count_(count) {}

  int count() const { return count_.load(std::memory_order_relaxed); }

  void run(Body body, void* ctx, std::int64_t n, std::int64_t grain) {
    std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
    if (inside_region || count() < 2 || n <= grain || !turn.try_lock()) {
      body(ctx, 0, n);
      return;
    }
    start_workers();
    open(body, ctx, n, grain);
    inside_region = true;
    take_chunks();
    inside_region = false;
    close();
  }

  void set_count(int count) {
    std::lock_guard<std::mutex> turn(turn_);
    stop_workers();
    count_.store(count, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kOpen = 1u << 16;

  void open(Body body, void* ctx, std::int64_t n, std::int64_t grain) {
    body_ = body;
    ctx_ = ctx;
    n_ = n;
    grain_ = grain;
    float_state_ = current_float_state();
    next_.store(0, std::memory_order_relaxed);
    state_.store(kOpen, std::memory_order_release);
    announce(static_cast<int>(std::min<std::int64_t>((n - 1) / grain, count())));
  }

  void announce(int helpers) {
    generation_.fetch_add(1);
    if (sleeping_.load() > 0) futex_wake(generation_, helpers);
  }

  void close() {
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    auto empty = [this] { return state_.load(std::memory_order_acquire) == 0; };
    while (!spin_until(empty)) sched_yield();
  }

  bool join() {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while (state & kOpen)
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_relaxed))
        return true;
    return false;
  }

  void leave() { state_.fetch_sub(1, std::memory_order_release); }

  void take_chunks() {
    for (;;) {
      const std::int64_t lo = next_.fetch_add(grain_, std::memory_order_relaxed);
      if (lo >= n_) return;
      body_(ctx_, lo, std::min(lo + grain_, n_));
    }
  }

  void work(std::uint32_t seen) {
    inside_region = true;
    for (;;) {
      auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
      while (!spin_until(changed)) {
        sleeping_.fetch_add(1);
        if (!changed()) futex_wait(generation_, seen);
        sleeping_.fetch_sub(1);
      }
      seen = generation_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_acquire)) return;
      if (!join()) continue;
      {
        FloatScope scope(float_state_);
        take_chunks();
      }
      leave();
    }
  }

  void start_workers() {
    if (!workers_.empty()) return;
    const std::uint32_t seen = generation_.load();
    try {
      for (int i = 1; i < count(); ++i) workers_.emplace_back([this, seen] { work(seen); });
    } catch (const std::system_error&) {
      // no more threads to be had: those that started, at least the caller, do the work
    }
  }

  void stop_workers() {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1);
    futex_wake(generation_, 1 << 20);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_.store(false, std::memory_order_release);
  }

  std::mutex turn_;  // held by the caller whose region is open
  std::atomic<int> count_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stopping_{false};

  Body body_ = nullptr;
  void* ctx_ = nullptr;
  std::int64_t n_ = 0;
  std::int64_t grain_ = 1;
  FloatState float_state_{};

  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> sleeping_{0};
};

std::atomic<ThreadPool*> the_pool{nullptr};

// A forked child has none of its parent's threads and may have its locks in any state: it gets a new pool. The old
// one is left where it is, its threads cannot be joined.
void renew_in_child() {
  ThreadPool* old = the_pool.load();
  if (old != nullptr) the_pool.store(new ThreadPool(old->count()));
  inside_region = false;
}

// Never destroyed: at exit the workers sleep, and the process ends under them.
ThreadPool& pool() {
  ThreadPool* found = the_pool.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    the_pool.store(new ThreadPool(default_num_threads()), std::memory_order_release);
    pthread_atfork(nullptr, nullptr, renew_in_child);
  });
  return *the_pool.load(std::memory_order_acquire);
}

}  // namespace

int default_num_threads() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  const int count = std::max(1, known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency()));
  const int limit = cpu_limit();
  return limit == 0 ? count : std::min(count, limit);
}

int num_threads() { return pool().count(); }

bool set_num_threads(int count) {
  if (inside_region) return false;
  pool().set_count(count);
  return true;
}

}  // namespace stablexla

extern "C" void stablexla_parallel_for(void (*body)(void*, std::int64_t, std::int64_t), void* ctx, std::int64_t n,
                                       std::int64_t grain) {
  if (n > 0) stablexla::pool().run(body, ctx, n, std::max<std::int64_t>(grain, 1));
}
