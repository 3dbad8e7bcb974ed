// How a run ends before its time. Machine code reads a word between kernels and at the back edges of loops; where it is
// not 0, it calls `stablexla_look_around`, which leaves the program if its run has been stopped.
#pragma once

#include <setjmp.h>

#include <atomic>
#include <cstdint>

extern "C" {
// The word, `news`: not 0 while a run of this process is to end, or signals have to be looked for.
__attribute__((visibility("default"))) const void* stablexla_news_address();
// `place` is a number of the program's `places`: where an error says that it was.
__attribute__((visibility("default"))) void stablexla_look_around(std::int64_t place);
// The same where the word is not 0.
__attribute__((visibility("default"))) void stablexla_check(std::int64_t place);
}

namespace stablexla {

class Guard;
struct Device;

enum class Ending : int {
  kNone,
  kTimeLimit,
  kCancelled,
  kInterrupted,
  kOuter,
  kDevices,
  kOutside,
  kNoMemory,
  kFailed
};

extern std::atomic<std::uint32_t> news;

// A limit on the runs of a thread, with those around it. Set by any thread; read by those that work for the runs.
struct Limit {
  explicit Limit(double seconds) : seconds(seconds) {}
  std::atomic<Ending> ending{Ending::kNone};
  const double seconds;  // less than 0 for ever
  const Limit* outer = nullptr;
};

extern thread_local const Limit* innermost_limit;

// How a run ended: why, and the place where it was then, -1 where that is not known.
struct RunEnd {
  Ending why = Ending::kNone;
  std::int64_t place = -1;
  double seconds = 0;  // of the time limit
};

// One call of a program, for all threads that work for it. It lives on the stack of the calling thread.
class RunControl {
 public:
  RunControl();
  virtual ~RunControl();
  RunControl(const RunControl&) = delete;

  void stop(Ending why);
  RunEnd end() const { return is_stopped() ? ended() : RunEnd{}; }
  bool is_stopped() const { return news.load(std::memory_order_relaxed) != 0 && ended().why != Ending::kNone; }
  virtual void look_for_signals() {}  // by the calling thread, now and then while there is news

  std::atomic<std::int64_t> place{-1};  // where it was left first

 private:
  RunEnd ended() const;

  std::atomic<Ending> own_{Ending::kNone};
  const Limit* limit_;
  const RunControl* outer_;
};

// What this thread runs machine code for, and its way out of there.
struct Innermost {
  RunControl* run = nullptr;
  jmp_buf* way_out = nullptr;
  bool is_caller = false;  // the thread that called the program
  Guard* guard = nullptr;    // of the run, where it is under guard
  Device* device = nullptr;  // null where the program is for one
};
extern thread_local Innermost innermost_run_here;

// Sets it, and restores the former at the end of the scope.
class InnermostScope {
 public:
  InnermostScope(RunControl* run, jmp_buf* way_out, bool is_caller, Guard* guard = nullptr, Device* device = nullptr)
      : former_(innermost_run_here) {
    innermost_run_here = {run, way_out, is_caller, guard, device};
  }
  ~InnermostScope() { innermost_run_here = former_; }
  InnermostScope(const InnermostScope&) = delete;

 private:
  Innermost former_;
};

// For the calling thread while it waits for others.
inline void look_while_waiting() {
  const Innermost& here = innermost_run_here;
  if (news.load(std::memory_order_relaxed) != 0 && here.is_caller) here.run->look_for_signals();
}

// Calls machine code; false when it was left by longjmp. Only frames without destructors lie between.
using Entry = void (*)(void** packed);
bool enter(Entry entry, void** packed, jmp_buf& way_out);

}  // namespace stablexla
