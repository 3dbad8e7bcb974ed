#include "run_limits.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

namespace stablexla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick(50);
constexpr int kIdleTicks = 20;  // without a run, after which the watch sleeps

thread_local bool is_here = false;           // the thread of signals
std::atomic<std::uint64_t> signalled_runs{0};  // odd while one lasts
std::atomic<bool> is_due_now{false};

// A thread that stops runs at their deadlines and asks for signals. Leaked, as the pool is.
class Watch {
 public:
  void add(RunLimits& limits, Clock::time_point deadline) {
    std::lock_guard<std::mutex> lock(turn_);
    deadlines_.push_back({&limits, deadline});
    start();
    changed_.notify_one();
  }

  void remove(RunLimits& limits) {
    std::lock_guard<std::mutex> lock(turn_);
    deadlines_.erase(std::remove_if(deadlines_.begin(), deadlines_.end(),
                                    [&](const Deadline& each) { return each.limits == &limits; }),
                     deadlines_.end());
  }

  // The unlocked read may miss that the watch is about to sleep: it then wakes a second later by itself.
  void wake() {
    if (!sleeps_.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(turn_);
    start();
    sleeps_.store(false, std::memory_order_relaxed);
    changed_.notify_one();
  }

 private:
  struct Deadline {
    RunLimits* limits;
    Clock::time_point at;
  };

  void start() {
    if (is_started_) return;
    try {
      std::thread([this] { work(); }).detach();
      is_started_ = true;
    } catch (const std::system_error&) {
      // the system gives no more threads: runs last as long as they do
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(turn_);
    std::uint64_t seen = 0;
    int idle = 0;
    for (;;) {
      const std::uint64_t now = signalled_runs.load(std::memory_order_relaxed);
      if (now % 2 == 1 && now == seen && !is_due_now.exchange(true)) news.fetch_add(1);
      idle = now == seen && now % 2 == 0 ? idle + 1 : 0;
      seen = now;
      const bool sleeps = idle >= kIdleTicks;
      sleeps_.store(sleeps, std::memory_order_relaxed);
      Clock::time_point until = Clock::now() + (sleeps ? kIdleTicks * kTick : kTick);
      for (const Deadline& each : deadlines_) until = std::min(until, each.at);
      changed_.wait_until(lock, until);
      if (sleeps && !sleeps_.load(std::memory_order_relaxed)) idle = 0;
      for (const Deadline& each : deadlines_)
        if (each.at <= Clock::now()) each.limits->stop(Ending::kTimeLimit);
      deadlines_.erase(std::remove_if(deadlines_.begin(), deadlines_.end(),
                                      [](const Deadline& each) { return each.limits->ending() != Ending::kNone; }),
                       deadlines_.end());
    }
  }

  std::mutex turn_;
  std::condition_variable changed_;
  std::vector<Deadline> deadlines_;
  std::atomic<bool> sleeps_{true};
  bool is_started_ = false;
};

std::atomic<Watch*> the_watch{nullptr};

Watch& watch() {
  Watch* found = the_watch.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    the_watch.store(new Watch(), std::memory_order_release);
    // a forked child has none of its parent's threads
    pthread_atfork(nullptr, nullptr, [] { the_watch.store(new Watch()); });
  });
  return *the_watch.load(std::memory_order_acquire);
}

}  // namespace

bool RunLimits::enter() {
  {
    std::lock_guard<std::mutex> lock(turn_);
    if (holds_) return false;
    holds_ = true;
    if (ending() != Ending::kNone) news.fetch_add(1);
  }
  limit_.outer = innermost_limit;
  innermost_limit = &limit_;
  if (limit_.seconds >= 0 && limit_.seconds < 1e9) {
    const std::chrono::duration<double> time(limit_.seconds);
    watch().add(*this, Clock::now() + std::chrono::duration_cast<Clock::duration>(time));
  }
  return true;
}

void RunLimits::leave() {
  if (!holds_) return;
  if (limit_.seconds >= 0) watch().remove(*this);
  std::lock_guard<std::mutex> lock(turn_);
  holds_ = false;
  innermost_limit = limit_.outer;
  if (ending() != Ending::kNone) news.fetch_sub(1);
}

void RunLimits::stop(Ending why) {
  std::lock_guard<std::mutex> lock(turn_);
  if (ending() != Ending::kNone) return;
  limit_.ending.store(why);
  if (holds_) news.fetch_add(1);
}

SignalledRun::SignalledRun() : is_outermost_(is_here && signalled_runs.load(std::memory_order_relaxed) % 2 == 0) {
  if (!is_outermost_) return;
  signalled_runs.store(signalled_runs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  watch().wake();
}

SignalledRun::~SignalledRun() {
  if (!is_outermost_) return;
  signalled_runs.store(signalled_runs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (is_due_now.load(std::memory_order_relaxed)) is_due();
}

bool SignalledRun::is_due() {
  if (!is_here || !is_due_now.exchange(false)) return false;
  news.fetch_sub(1);
  return true;
}

void set_signal_thread() { is_here = true; }

}  // namespace stablexla
