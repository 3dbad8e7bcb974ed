// Limits that a thread puts on its runs: seconds, and cancellation by another thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "stopping.h"

namespace stablexla {

class RunLimits {
 public:
  explicit RunLimits(double seconds) : limit_(seconds) {}  // less than 0 for ever
  ~RunLimits() { leave(); }
  RunLimits(const RunLimits&) = delete;

  // For the runs of this thread from now on; the seconds count from here. False where it holds already.
  bool enter();
  void leave();
  // From any thread; also ahead of time, for the runs to come.
  void stop(Ending why);
  Ending ending() const { return limit_.ending.load(); }

 private:
  Limit limit_;
  std::mutex turn_;
  bool holds_ = false;
};

// Signals have to be handled by one thread of Python, and only when it asks for them: while a run of that thread
// lasts, it is asked to by `news`, twenty times a second. The thread that does so sleeps while there are no runs.
class SignalledRun {
 public:
  SignalledRun();
  ~SignalledRun();
  SignalledRun(const SignalledRun&) = delete;

  static bool is_due();  // whether signals are to be looked for; not again until the next time

 private:
  bool is_outermost_;
};

void set_signal_thread();  // this one: Python's main thread

}  // namespace stablexla
