// Threads that wait by the list of sleepers that macOS has in place of futexes; ends with 0, or the line that failed.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "parking.h"

using stablexla::ParkingLot;
using Word = ParkingLot::Word;

#define EXPECT(what) \
  if (!(what)) return __LINE__

int main() {
  static ParkingLot lot;
  Word word{1};
  lot.wait(word, 2, ParkingLot::kNoLimit);  // it has changed already
  const auto start = std::chrono::steady_clock::now();
  lot.wait(word, 1, std::chrono::milliseconds(20));  // nobody wakes it
  EXPECT(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(20));
  lot.wake(&word, 1);  // nobody sleeps

  // A token goes round: each thread waits for its number, and wakes all for the next.
  constexpr std::uint32_t kThreads = 4, kRounds = 500;
  Word at{0};
  std::vector<std::thread> threads;
  for (std::uint32_t me = 0; me < kThreads; ++me)
    threads.emplace_back([&, me] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        for (std::uint32_t seen; (seen = at.load()) != round * kThreads + me;) lot.wait(at, seen, ParkingLot::kNoLimit);
        at.fetch_add(1);
        lot.wake(&at, 1 << 20);
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT(at == kThreads * kRounds);

  // One wake, one sleeper: words of one bucket, and a count.
  alignas(64) static Word words[2];
  std::atomic<int> through{0};
  threads.clear();
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      Word& mine = words[i % 2];  // two at the first
      lot.wait(mine, 0, ParkingLot::kNoLimit);
      through.fetch_add(i % 2 == 0 ? 1 : 100);
    });
  while (lot.sleepers(&words[0]) < 2 || lot.sleepers(&words[1]) < 1) std::this_thread::yield();
  lot.wake(&words[0], 1);
  while (through.load() == 0) std::this_thread::yield();
  EXPECT(through == 1);
  EXPECT(lot.sleepers(&words[0]) == 1 && lot.sleepers(&words[1]) == 1);
  lot.wake(&words[0], 5);
  lot.wake(&words[1], 5);
  for (std::thread& each : threads) each.join();
  EXPECT(through == 102);
  return 0;
}
