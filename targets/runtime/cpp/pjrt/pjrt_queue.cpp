// The queue of runs and its thread.
#include "pjrt_queue.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

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
    changed_.wait(lock, [&] { return runs_.empty() || (runs_.size() < kRuns && bytes_ + bytes <= kBytes); });
    bytes_ += bytes;
    runs_.emplace_back(bytes, std::move(run));
    lock.unlock();
    changed_.notify_all();
  }

  std::mutex& turn() { return turn_; }

  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return runs_.empty() && !is_running_; });
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !runs_.empty(); });
      auto [bytes, run] = std::move(runs_.front());
      runs_.pop_front();
      is_running_ = true;
      lock.unlock();
      run();
      run = nullptr;
      lock.lock();
      bytes_ -= bytes;
      is_running_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_, turn_;
  std::condition_variable changed_;
  std::deque<std::pair<std::size_t, std::function<void()>>> runs_;
  std::size_t bytes_ = 0;
  bool is_started_ = false, is_running_ = false;
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

std::mutex& turn() { return queue().turn(); }

void drain() { queue().drain(); }

}  // namespace stablexla::pjrt
