// Waiting on a word where the system offers none that everyone may call: sleeping threads are listed by its address.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

namespace stablexla {

class ParkingLot {
 public:
  using Word = std::atomic<std::uint32_t>;
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();

  // Sleeps until the word is woken, and at most so long; returns at once where it has changed already. The word is
  // changed before it is woken, so a thread that has read `seen` under the lock is in the list by then.
  void wait(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
    Bucket& bucket = bucket_of(&word);
    std::unique_lock<std::mutex> lock(bucket.mutex);
    if (word.load() != seen) return;
    const auto here = bucket.sleepers.emplace(bucket.sleepers.end());
    here->word = &word;
    const auto woken = [&] { return here->word == nullptr; };
    if (limit == kNoLimit)
      here->bell.wait(lock, woken);
    else
      here->bell.wait_for(lock, limit, woken);
    bucket.sleepers.erase(here);
  }

  // Wakes those that have slept for longest.
  void wake(const Word* word, int count) {
    Bucket& bucket = bucket_of(word);
    std::lock_guard<std::mutex> lock(bucket.mutex);
    for (Sleeper& each : bucket.sleepers) {
      if (count <= 0) return;
      if (each.word != word) continue;
      each.word = nullptr;
      each.bell.notify_one();  // under the lock: it is gone soon after
      --count;
    }
  }

  // How many sleep on a word, and are not woken.
  int sleepers(const Word* word) {
    Bucket& bucket = bucket_of(word);
    std::lock_guard<std::mutex> lock(bucket.mutex);
    return static_cast<int>(std::count_if(bucket.sleepers.begin(), bucket.sleepers.end(),
                                          [word](const Sleeper& each) { return each.word == word; }));
  }

 private:
  struct Sleeper {
    const Word* word = nullptr;  // null once it is woken
    std::condition_variable bell;
  };

  struct Bucket {
    std::mutex mutex;
    std::list<Sleeper> sleepers;
  };

  Bucket& bucket_of(const Word* word) { return buckets_[reinterpret_cast<std::uintptr_t>(word) / 64 % kBuckets]; }

  static constexpr std::size_t kBuckets = 64;
  Bucket buckets_[kBuckets];
};

}  // namespace stablexla
