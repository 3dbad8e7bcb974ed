// Letting go of Python's lock while machine code runs, so that it can be taken back at any time: also while Python ends.

#pragma once

#include <Python.h>

namespace stablexla {

// The GIL is free for others as long as this lives. Python 3.11 ends a thread that asks for the GIL during shutdown by
// unwinding it, through frames which must not be unwound, so that the process would abort. Such a thread sleeps instead.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  // For a thread that Python does not know, and that may never need it: it becomes known when it takes the GIL.
  explicit ReleasedGil(PyInterpreterState* interpreter) : state_(nullptr), interpreter_(interpreter) {}
  ~ReleasedGil() {
    if (interpreter_ == nullptr)
      take();
    else if (state_ != nullptr)
      forget();
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

  void take();  // takes the GIL back for a while: until `release`
  void release() { state_ = PyEval_SaveThread(); }

 private:
  void forget();

  PyThreadState* state_;
  PyInterpreterState* interpreter_ = nullptr;
};

// To be called once when the interpreter is about to end, by the thread that ends it: from then on no other thread
// takes the GIL back, and those that are about to have done so when this returns.
void begin_shutdown();

}  // namespace stablexla
