// Releases the GIL while machine code runs, such that it can be reacquired at any time, also while Python finalizes.

#pragma once

#include <Python.h>

namespace stablexla {

// The GIL is released as long as this lives. Python 3.11 ends a thread that acquires the GIL during finalization by
// unwinding it, through frames that must not be unwound, so that the process would abort. Such a thread sleeps instead.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  // For a thread unknown to Python, which may never need the GIL: it is registered when it takes it.
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
bool is_ending();  // whether it has begun

}  // namespace stablexla
