// The queue of runs and its thread.
#include "pjrt_queue.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "pjrt_objects.h"
#include "run_limits.h"
#include "system.h"

namespace stablexla::pjrt {

namespace {

// A caller that is further ahead waits: each run in the queue holds its arguments and its results.
constexpr std::size_t kRuns = 32, kBytes = std::size_t(1) << 28;

class Queue {
 public:
  void add(std::size_t bytes, std::function<void()> run) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!is_started_) {
      std::thread([this] { work(); }).detach();
      is_started_ = true;
    }
    bytes_ += bytes;
    runs_.push_back({bytes, std::move(run), std::make_shared<RunLimits>(-1)});
    lock.unlock();
    changed_.notify_all();
  }

  bool wait_for_room(std::size_t bytes, std::unique_lock<std::mutex>& turn) {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!wait_for(changed_, lock, [&] { return has_room(bytes); })) return false;
      lock.unlock();  // without it, and without the turn, signals' handlers may call programs
      turn.lock();
      lock.lock();
      if (has_room(bytes)) return true;
      turn.unlock();
    }
  }

  std::mutex& turn() { return turn_; }

  void stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (running_ != nullptr) running_->stop(Ending::kCancelled);
    for (const Run& each : runs_) each.limits->stop(Ending::kCancelled);
  }

  void drain() {
    stop();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return runs_.empty() && running_ == nullptr; });
  }

 private:
  struct Run {
    std::size_t bytes;
    std::function<void()> call;
    std::shared_ptr<RunLimits> limits;  // by which it is stopped
  };

  bool has_room(std::size_t bytes) const { return runs_.empty() || (runs_.size() < kRuns && bytes_ + bytes <= kBytes); }

  [[noreturn]] void work() {
    name_thread("stablexla-queue");
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !runs_.empty(); });
      Run run = std::move(runs_.front());
      runs_.pop_front();
      running_ = run.limits;
      lock.unlock();
      run.limits->enter();
      run.call();
      run.limits->leave();
      run.call = nullptr;
      lock.lock();
      bytes_ -= run.bytes;
      running_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_, turn_;
  std::condition_variable changed_;
  std::deque<Run> runs_;
  std::shared_ptr<RunLimits> running_;
  std::size_t bytes_ = 0;
  bool is_started_ = false;
};

// Leaked on purpose: its thread waits until the process ends. A forked child has no such thread, and gets a new queue.
std::atomic<Queue*> the_queue{nullptr};

Queue& queue() {
  static std::once_flag once;
  std::call_once(once, [] {
    the_queue.store(new Queue);
    pthread_atfork(nullptr, nullptr, [] { the_queue.store(new Queue); });
  });
  return *the_queue.load();
}

}  // namespace

void enqueue(std::size_t bytes, std::function<void()> run) { queue().add(bytes, std::move(run)); }

bool wait_for_room(std::size_t bytes, std::unique_lock<std::mutex>& lock) { return queue().wait_for_room(bytes, lock); }

std::mutex& turn() { return queue().turn(); }

void stop_queue() { queue().stop(); }

void drain() { queue().drain(); }

}  // namespace stablexla::pjrt
