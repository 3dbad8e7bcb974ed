#include "device_threads.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "system.h"
#include "waiting.h"

namespace stablexla {

class DeviceThread {
 public:
  DeviceThread() {
    std::thread([this] { work(); }).detach();
  }

  void start(DeviceThreads::Job job, void* context, std::size_t index, bool spins) {
    job_ = job;
    spins_.store(spins, std::memory_order_relaxed);
    context_ = context;
    index_ = index;
    jobs_.fetch_add(1);
    if (sleeps_.load()) futex_wake(jobs_, 1);
  }

 private:
  // Spin time, so that consecutive runs of a loop pay for no wake-up.
  static constexpr std::chrono::microseconds kSpin{30};

  template <typename Changed>
  bool look_for_a_moment(Changed changed) const {
    return spins_.load(std::memory_order_relaxed) ? spin_until(changed, kSpin) : yield_until(changed, kSpin);
  }

  void work() {
    name_thread("stablexla-dev");
    for (std::uint32_t seen = 0;; ++seen) {
      const auto changed = [&] { return jobs_.load(std::memory_order_acquire) != seen; };
      while (!look_for_a_moment(changed)) {
        sleeps_.store(true);
        if (!changed()) futex_wait(jobs_, seen);
        sleeps_.store(false);
      }
      job_(context_, index_);
    }
  }

  DeviceThreads::Job job_ = nullptr;
  void* context_ = nullptr;
  std::size_t index_ = 0;
  std::atomic<bool> spins_{true};
  alignas(kSharingBytes) Word jobs_{0};
  std::atomic<bool> sleeps_{false};
};

namespace {

struct Idle {
  std::mutex mutex;
  std::vector<DeviceThread*> threads;
};

std::atomic<Idle*> the_idle{nullptr};

// A forked child has none of its parent's threads.
void renew_in_child() { the_idle.store(new Idle); }

// Leaked on purpose: at exit the threads sleep until the process ends.
Idle& idle() {
  Idle* found = the_idle.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    the_idle.store(new Idle, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, renew_in_child);
  });
  return *the_idle.load(std::memory_order_acquire);
}

void give_back(std::vector<DeviceThread*>& threads) {
  if (threads.empty()) return;
  Idle& all = idle();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (; !threads.empty(); threads.pop_back()) all.threads.push_back(threads.back());
}

}  // namespace

DeviceThreads::DeviceThreads(std::size_t count) {
  threads_.reserve(count);
  if (count == 0) return;
  Idle& all = idle();
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    for (; threads_.size() < count && !all.threads.empty(); all.threads.pop_back())
      threads_.push_back(all.threads.back());
  }
  try {
    while (threads_.size() < count) threads_.push_back(new DeviceThread);
  } catch (const std::system_error&) {
    const std::size_t had = threads_.size();
    give_back(threads_);
    throw std::runtime_error("the system gives no more than " + std::to_string(had) + " of the " +
                             std::to_string(count) + " threads that the devices need");
  }
}

DeviceThreads::~DeviceThreads() { give_back(threads_); }

void DeviceThreads::start(Job job, void* context, bool spins) {
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i]->start(job, context, i, spins);
}

std::size_t idle_device_threads() {
  Idle& all = idle();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.threads.size();
}

}  // namespace stablexla
