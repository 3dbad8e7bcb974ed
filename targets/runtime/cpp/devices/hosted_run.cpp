#include "hosted_run.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "device_run.h"
#include "ffi_call.h"
#include "float_mode.h"
#include "system.h"

namespace stablexla {
namespace {

// A host function may run another program, or the same one: runs of one thread form a stack.
thread_local HostedRun* innermost = nullptr;

}  // namespace

nb::object Arena::share() {
  if (!owner_.is_valid())
    owner_ = block_.data != nullptr ? nb::steal(owner_of(std::exchange(block_, Block{}))) : nb::none();
  return owner_;
}

HostedRun::HostedRun(const HostTable& table, SharedMemory& memory, nb::object program, nb::object arguments,
                     nb::object results)
    : table_(table),
      memory_(memory),
      program_(std::move(program)),
      arguments_(std::move(arguments)),
      results_(std::move(results)) {}

bool HostedRun::run(Entry entry, void** packed, ReleasedGil& gil, RunControl& control, Guard* guard,
                    Device* device) {
  gil_ = &gil;
  outer_ = std::exchange(innermost, this);
  const bool is_caller = device == nullptr || device->is_caller;
  InnermostScope scope(&control, &way_out_, is_caller, guard, device);
  const bool through = enter(entry, packed, way_out_);
  innermost = outer_;
  return through;
}

std::string HostedRun::raised_text() {
  gil_->take();
  std::string text = raised_.text();
  gil_->release();
  return text;
}

std::uint64_t HostedRun::next_random_key() const {
  const Device* device = innermost_run_here.device;
  return table_.next_random_key(device == nullptr ? 0 : device->number);
}

nb::object HostedRun::owner() {
  return nb::make_tuple(memory_.share(), arguments_, results_, program_);
}

nb::object HostedRun::views(const std::vector<ArraySpec>& specs, void** data, const nb::object& owner, bool writable) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(specs.size())));
  if (!tuple.is_valid()) throw_python();
  for (std::size_t i = 0; i < specs.size(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i),
                     view_of(specs[i], data[i], owner, writable).release().ptr());
  return tuple;
}

bool HostedRun::call_ffi(const FfiCall& call, void** outputs, void** inputs) noexcept {
  const std::string said = call.execute(outputs, inputs);
  if (said.empty()) return true;
  gil_->take();
  try {
    cold_path("raise_ffi_failure")(nb::str(call.name.c_str()), nb::str(said.c_str(), said.size()));
  } catch (nb::python_error& error) {
    error.restore();
  }
  raised_.take();
  gil_->release();
  return false;
}

bool HostedRun::call(std::size_t number, void** outputs, void** inputs) noexcept {
  const FfiCall* ffi = table_.callbacks.at(number).ffi;
  if (ffi != nullptr) return call_ffi(*ffi, outputs, inputs);
  gil_->take();
  bool done = false;
  try {
    FloatScope scope(program_float_state(false));
    try {
      const Callback& callback = table_.callbacks.at(number);
      {
        nb::object whose = owner();
        nb::object given = views(callback.inputs, inputs, whose, false);
        nb::object wanted = views(callback.outputs, outputs, whose, true);
        callback.handler(given, wanted);
      }
      memory_.after_call();
      done = true;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  } catch (ThreadExit&) {
    // Python was finalized while its code ran here, and ends this thread by unwinding it: see ReleasedGil.
    for (;;) pause();
  }
  if (!done) raised_.take();
  gil_->release();
  return done;
}

}  // namespace stablexla

extern "C" void stablexla_call_host(std::int64_t number, void** outputs, void** inputs) {
  stablexla::HostedRun* run = stablexla::innermost;
  // a device also stops here when its run has been stopped
  const stablexla::Device* device = stablexla::innermost_run_here.device;
  const auto is_stopped = [device] {
    return (device != nullptr && device->run->is_stopped()) || stablexla::innermost_run_here.run->is_stopped();
  };
  if (is_stopped() || !run->call(static_cast<std::size_t>(number), outputs, inputs) || is_stopped()) run->leave();
}

extern "C" std::uint64_t stablexla_next_random_key() { return stablexla::innermost->next_random_key(); }
