#include "called_run.h"

#include <unistd.h>

#include <utility>

#include <nanobind/stl/string.h>

#include "arrays.h"
#include "system.h"

namespace stablexla {

Raised::~Raised() {
  Py_XDECREF(type_);
  Py_XDECREF(value_);
  Py_XDECREF(trace_);
}

void Raised::rethrow() {
  if (type_ == nullptr) return;
  PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr), std::exchange(trace_, nullptr));
  throw_python();
}

std::string Raised::text() const {
  std::string text;
  if (PyObject* words = value_ != nullptr ? PyObject_Str(value_) : nullptr) {
    if (const char* bytes = PyUnicode_AsUTF8(words)) text = bytes;
    Py_DECREF(words);
  }
  PyErr_Clear();
  return text;
}

bool look_for_signals(ReleasedGil& gil, Raised& raised) noexcept {
  gil.take();
  try {
    if (!raised.is_set() && PyErr_CheckSignals() != 0) raised.take();
  } catch (ThreadExit&) {
    for (;;) pause();  // Python was finalized while its code ran here: see ReleasedGil
  }
  const bool fine = !raised.is_set();
  gil.release();
  return fine;
}

void CalledRun::look_for_signals() {
  if (SignalledRun::is_due() && !stablexla::look_for_signals(gil_, raised_)) stop(Ending::kInterrupted);
}

void raise_ended(const std::string& program, const std::map<std::int64_t, std::string>& places, RunEnd end,
                 Raised& raised) {
  if (end.why == Ending::kNone || end.why == Ending::kInterrupted) return raised.rethrow();
  constexpr const char* words[] = {"", "time limit", "cancelled", "interrupted", "outer", "devices", "guard", "memory"};
  const auto place = places.find(end.place);
  cold_path("raise_stopped", "stablexla.targets.runtime.stopped")(
      program, words[static_cast<int>(end.why)], place != places.end() ? place->second : "", end.seconds);
}

}  // namespace stablexla
