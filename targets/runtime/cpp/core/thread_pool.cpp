#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu_limit.h"
#include "device_number.h"
#include "float_mode.h"
#include "stopping.h"
#include "system.h"
#include "waiting.h"

namespace stablexla {
namespace {

using Body = void (*)(void*, std::int64_t, std::int64_t);

// Spin time of an idle worker before it sleeps: longer than the gap between two kernels of one program, too short to
// show as load.
constexpr std::chrono::microseconds kSpin(30);

// A region of one thread is run in so many pieces, where it has more chunks than a few: those end soon.
constexpr std::int64_t kPieces = 64, kFewChunks = 8;

thread_local bool inside_region = false;

template <typename Done>
bool spin_until(Done done) {
  return stablexla::spin_until(done, kSpin);
}

// 0 for threads outside of the pool, from 1 for its workers.
thread_local int thread_number = 0;

// The share of a thread: consecutive chunks, of which it takes the first that is left, and others, when their own are
// done, the last. A program's kernels find in the thread's cache what the kernels before them left there, and a later call
// finds the weights.
struct alignas(kSharingBytes) Share {
  std::atomic<std::uint64_t> left{0};  // the first chunk, and above 32 bits the end

  void fill(std::uint64_t first, std::uint64_t end) { left.store(end << 32 | first, std::memory_order_relaxed); }

  bool is_empty() const {
    const std::uint64_t now = left.load(std::memory_order_relaxed);
    return (now & 0xffffffff) >= now >> 32;
  }

  // Claims a chunk; -1 when none is left.
  std::int64_t claim(bool first) {
    std::uint64_t now = left.load(std::memory_order_relaxed);
    while ((now & 0xffffffff) < now >> 32) {
      const std::uint64_t then = first ? now + 1 : now - (std::uint64_t{1} << 32);
      if (left.compare_exchange_weak(now, then, std::memory_order_relaxed))
        return static_cast<std::int64_t>(first ? now & 0xffffffff : (now >> 32) - 1);
    }
    return -1;
  }
};

// A parallel region: a call of `stablexla_parallel_for` in progress. `state` is an open flag and a count of workers: a
// worker joins only an open region, and the caller, when no chunk is left, closes it and waits for those that joined, not
// for those asleep.
struct alignas(kSharingBytes) Region {
  static constexpr std::uint32_t kOpen = 1u << 16;
  static constexpr int kShares = 64;                      // further threads share these
  static constexpr std::int64_t kMostChunks = 1ll << 31;  // a share counts them in 32 bits

  Body body = nullptr;
  void* ctx = nullptr;
  std::int64_t grain = 1;
  FloatState float_state{};
  std::int64_t device = 0;
  RunControl* run = nullptr;  // that it is a part of, if it can be stopped
  Guard* guard = nullptr;    // of that run
  std::int64_t n = 0;
  std::atomic<int> share_count{0};  // workers read it before they join
  Share shares[kShares];
  alignas(kSharingBytes) std::atomic<std::uint32_t> state{0};

  void open(Body body_, void* ctx_, std::int64_t n_, std::int64_t grain_, int threads) {
    body = body_;
    ctx = ctx_;
    n = n_;
    grain = grain_ * ((n - 1) / grain_ / kMostChunks + 1);
    const std::int64_t chunks = (n - 1) / grain + 1, count = std::min<std::int64_t>({threads, kShares, chunks});
    for (std::int64_t i = 0; i < count; ++i) shares[i].fill(i * chunks / count, (i + 1) * chunks / count);
    share_count.store(static_cast<int>(count), std::memory_order_relaxed);
    float_state = current_float_state();
    device = device_number;
    run = innermost_run_here.run;
    guard = innermost_run_here.guard;
    state.store(kOpen, std::memory_order_release);
  }

  void close() {
    state.fetch_and(~kOpen, std::memory_order_acq_rel);
    auto empty = [this] { return state.load(std::memory_order_acquire) == 0; };
    while (!spin_until(empty)) {
      look_while_waiting();
      sched_yield();
    }
  }

  // Joins a region of at most `most` workers; false when it is full or closed.
  bool join(int most) {
    std::uint32_t now = state.load(std::memory_order_relaxed);
    while (now & kOpen && static_cast<int>(now & ~kOpen) < most)
      if (state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
    return false;
  }

  void leave() { state.fetch_sub(1, std::memory_order_release); }

  // Leaves the region if it has more than `most` workers.
  bool leave_to(int most) {
    std::uint32_t now = state.load(std::memory_order_relaxed);
    while (static_cast<int>(now & ~kOpen) > most)
      if (state.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
    return false;
  }

  bool has_chunks() const {
    const int count = share_count.load(std::memory_order_relaxed);
    return std::any_of(shares, shares + count, [](const Share& share) { return !share.is_empty(); });
  }

  // Claims a chunk and runs it (dynamic scheduling); false when none is left, or the run has been stopped.
  bool take_chunk() {
    const int count = share_count.load(std::memory_order_relaxed), own = thread_number % count;
    if (run != nullptr && run->is_stopped()) {
      for (int i = 0; i < count; ++i) shares[i].fill(0, 0);
      return false;
    }
    std::int64_t chunk = shares[own].claim(true);
    for (int i = 1; chunk < 0 && i < count; ++i) chunk = shares[(own + i) % count].claim(false);
    if (chunk < 0) return false;
    body(ctx, chunk * grain, std::min((chunk + 1) * grain, n));
    return true;
  }
};

// Runs chunks as long as `more` holds. False when machine code was left from inside of one, as the run has been stopped.
template <typename More>
__attribute__((noinline)) bool take_chunks(Region& region, bool is_caller, More more) {
  jmp_buf way_out;
  InnermostScope scope(region.run, &way_out, is_caller, region.guard);
  if (_setjmp(way_out) != 0) return false;
  while (more() && region.take_chunk()) {
  }
  return true;
}

// Callers work too: with several regions open, the remaining threads are distributed evenly among them, even while
// they run.
class ThreadPool {
 public:
  explicit ThreadPool(int count) : count_(count) {}

  int count() const { return count_.load(std::memory_order_relaxed); }

  void run(Body body, void* ctx, std::int64_t n, std::int64_t grain) {
    const int place = inside_region || count() < 2 || n <= grain ? -1 : take_place();
    if (place < 0) {
      run_alone(body, ctx, n, grain);
      return;
    }
    start_workers();
    Region& region = regions_[place];
    region.open(body, ctx, n, grain, count());
    open_.fetch_or(1u << place, std::memory_order_acq_rel);
    announce(static_cast<int>(std::min<std::int64_t>((n - 1) / grain, helpers())));
    inside_region = true;
    take_chunks(region, innermost_run_here.is_caller, [] {
      look_while_waiting();
      return true;
    });
    inside_region = false;
    const std::uint32_t others = open_.fetch_and(~(1u << place), std::memory_order_acq_rel) & ~(1u << place);
    region.close();
    taken_.fetch_and(~(1u << place), std::memory_order_release);
    if (others != 0) announce(helpers());  // they may have more workers now
  }

  void set_count(int count) {
    std::lock_guard<std::mutex> turn(workers_turn_);
    taken_.fetch_or(kNobody, std::memory_order_acq_rel);
    while (taken_.load(std::memory_order_acquire) != kNobody) sched_yield();
    stop_workers();
    count_.store(count, std::memory_order_relaxed);
    taken_.store(0, std::memory_order_release);
  }

 private:
  // By the calling thread; in pieces, so that it can be stopped between them.
  static void run_alone(Body body, void* ctx, std::int64_t n, std::int64_t grain) {
    const bool stops = innermost_run_here.run != nullptr && n / grain > kFewChunks;
    const std::int64_t piece = stops ? ((n - 1) / kPieces / grain + 1) * grain : n;
    for (std::int64_t lo = 0; lo < n; lo += piece) {
      if (lo != 0) {
        look_while_waiting();
        if (innermost_run_here.run->is_stopped()) return;
      }
      body(ctx, lo, std::min(lo + piece, n));
    }
  }

  static constexpr int kRegions = 16;                  // open at once; further callers run alone
  static constexpr std::uint32_t kNobody = 1u << 31;  // of `taken_`: no region may be opened

  // Claims a slot for a region; -1 if none is free.
  int take_place() {
    std::uint32_t taken = taken_.load(std::memory_order_relaxed);
    while (!(taken & kNobody)) {
      const int place = __builtin_ctz(~taken);
      if (place >= kRegions) break;
      if (taken_.compare_exchange_weak(taken, taken | 1u << place, std::memory_order_acq_rel)) return place;
    }
    return -1;
  }

  // Worker limit of each open region, so that running threads never exceed the number of threads.
  int helpers() const {
    const int regions = std::max(1, __builtin_popcount(open_.load(std::memory_order_relaxed)));
    return std::max(0, (count() - regions) / regions);
  }

  void announce(int wanted) {
    generation_.fetch_add(1);
    if (wanted > 0 && sleeping_.load() > 0) futex_wake(generation_, wanted);
  }

  // Joins the open region with the fewest workers among those below the limit and with chunks; null if there is none.
  Region* join_one() {
    for (int most = 1; most <= helpers(); ++most)
      for (std::uint32_t left = open_.load(std::memory_order_acquire); left != 0; left &= left - 1) {
        Region& region = regions_[__builtin_ctz(left)];
        if (region.has_chunks() && region.join(most)) return &region;
      }
    return nullptr;
  }

  // Runs chunks until none is left, or another region needs the worker more.
  void help(Region& region) {
    FloatScope scope(region.float_state);
    DeviceScope number(region.device);
    bool has_left = false;
    take_chunks(region, false, [&] { return !(has_left = region.leave_to(helpers())); });
    if (!has_left) region.leave();
  }

  void work(int number, std::uint32_t seen) {
    name_thread("stablexla-pool");
    thread_number = number;
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
      while (Region* region = join_one()) help(*region);
    }
  }

  void start_workers() {
    if (started_.load(std::memory_order_acquire)) return;
    std::unique_lock<std::mutex> turn(workers_turn_, std::try_to_lock);
    if (!turn.owns_lock() || started_.load(std::memory_order_relaxed)) return;  // another caller is starting them
    const std::uint32_t seen = generation_.load();
    try {
      for (int i = 1; i < count(); ++i) workers_.emplace_back([this, i, seen] { work(i, seen); });
    } catch (const std::system_error&) {
      // the system gives no more threads: those that started, at least the caller, do the work
    }
    started_.store(true, std::memory_order_release);
  }

  void stop_workers() {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1);
    futex_wake(generation_, 1 << 20);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_.store(false, std::memory_order_release);
    started_.store(false, std::memory_order_release);
  }

  std::mutex workers_turn_;  // held while workers are started or stopped
  std::atomic<int> count_;
  std::vector<std::thread> workers_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stopping_{false};

  Region regions_[kRegions];
  alignas(kSharingBytes) std::atomic<std::uint32_t> taken_{0};  // bit set of claimed slots
  std::atomic<std::uint32_t> open_{0};               // bit set of slots whose region workers may join
  alignas(kSharingBytes) std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> sleeping_{0};
};

std::atomic<ThreadPool*> the_pool{nullptr};

// A forked child has none of its parent's threads, and its locks may be in any state: it gets a new pool. The old one
// is leaked, as its threads cannot be joined.
void renew_in_child() {
  ThreadPool* old = the_pool.load();
  if (old != nullptr) the_pool.store(new ThreadPool(old->count()));
  inside_region = false;
}

// Leaked on purpose: at exit the workers sleep until the process ends.
ThreadPool& pool() {
  ThreadPool* found = the_pool.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    the_pool.store(new ThreadPool(default_num_threads()), std::memory_order_release);
    keep_library(reinterpret_cast<const void*>(&stablexla_parallel_for));  // its workers never end
    pthread_atfork(nullptr, nullptr, renew_in_child);
  });
  return *the_pool.load(std::memory_order_acquire);
}

}  // namespace

int default_num_threads() {
  const int count = usable_cpus(), limit = cpu_limit();
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
