// A run that Python called: it ends on signals too, with the exception of their handler.
#pragma once

#include <Python.h>

#include <map>
#include <string>

#include "released_gil.h"
#include "run_limits.h"

namespace stablexla {

// A Python exception that waits for the GIL.
class Raised {
 public:
  Raised() = default;
  ~Raised();
  Raised(const Raised&) = delete;

  void take() { PyErr_Fetch(&type_, &value_, &trace_); }  // the one that is set
  bool is_set() const { return type_ != nullptr; }
  void rethrow();       // if there is one
  std::string text() const;  // with the GIL

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

// Runs Python's handlers of signals; the exception of one is kept. False when there is one.
bool look_for_signals(ReleasedGil& gil, Raised& raised) noexcept;

class CalledRun final : public RunControl {
 public:
  explicit CalledRun(ReleasedGil& gil, Raised& raised) : gil_(gil), raised_(raised) {}
  void look_for_signals() override;

 private:
  ReleasedGil& gil_;
  Raised& raised_;
  SignalledRun signalled_;
};

// Raises the error of a run that was stopped, or the exception that it has; returns where there is neither.
void raise_ended(const std::string& program, const std::map<std::int64_t, std::string>& places, RunEnd end,
                 Raised& raised);

}  // namespace stablexla
