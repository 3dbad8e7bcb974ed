// Profiling marks of instrumented programs: `stablexla_mark(n)` records that this thread passed mark n now. Without an
// active profile, a mark does nothing. Marks from `kFirstTraced` on are a trace's, which many programs share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

extern "C" {
__attribute__((visibility("default"))) void stablexla_mark(std::int64_t number);
}

namespace stablexla {

struct ThreadMarks {
  int thread;         // from 0, in the order in which threads passed their first mark
  std::string pairs;  // mark and nanoseconds, both std::int64_t, one after the other
};

void begin_profile();
std::vector<ThreadMarks> end_profile();  // the marks recorded since; no profiled program may be running

// A trace: begins and ends of spans, by even and odd numbers, of the programs that run while it is on. There is one at a
// time, with at most `kMostSpans` spans; a forked child has none.
constexpr std::int64_t kFirstTraced = std::int64_t(1) << 32;
constexpr std::size_t kMostSpans = 250'000;
extern std::atomic<bool> tracing;

struct TracedMark {
  std::int64_t number;
  std::int64_t time;    // nanoseconds since the epoch
  std::int64_t device;  // that the thread works for, by its number in the program
};

struct TracedThread {
  std::uint64_t id;  // a hash of std::thread::id, by which other tracers of this process name threads
  std::string name;
  std::vector<TracedMark> marks;
};

struct Trace {
  std::int64_t begin = 0, end = 0;  // nanoseconds since the epoch
  std::vector<TracedThread> threads;
  std::size_t dropped = 0;  // spans for which there was no room
};

void begin_trace();  // forgets the last one
void end_trace();    // programs may be running
Trace take_trace();  // that has ended

}  // namespace stablexla
