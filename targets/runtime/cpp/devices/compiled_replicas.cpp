// A compiled program on several devices at once: arguments, threads and results of each.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>

#include "arrays.h"
#include "called_run.h"
#include "compiled_function.h"
#include "device_number.h"
#include "device_run.h"
#include "device_threads.h"
#include "float_mode.h"
#include "hosted_run.h"
#include "released_gil.h"

namespace stablexla {

// One device's arguments, results and arena. Created and freed by the calling thread, which has the GIL then.
struct CompiledFunction::DeviceCall {
  nb::object given;  // a tuple
  std::vector<std::array<char, kScalarBytes>> scalars;
  std::vector<nb::object> kept, made;
  std::unique_ptr<Arena> arena;
  std::vector<void*> data, packed;
  std::unique_ptr<HostedRun> hosted;
  std::shared_ptr<Guard> guard;
};

namespace {

nb::dict as_dict(const DeviceRun& run) {
  const Failure said = run.explained();
  nb::dict dict, missing;
  for (const auto& [device, where] : said.missing) missing[nb::int_(device)] = where;
  dict["kind"] = run.why().text();
  dict["number"] = run.why().number;
  dict["group"] = nb::cast(run.why().group);
  dict["summary"] = said.summary;
  dict["arrived"] = nb::cast(said.arrived);
  dict["missing"] = missing;
  return dict;
}

}  // namespace

void CompiledFunction::prepare(DeviceCall& call, int device, std::size_t place, std::vector<PyObject*>& arrays,
                               bool donate) const {
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(call.given.ptr()));
  if (count != parameters.size())
    cold_path("raise_wrong_count")(name + ": device " + std::to_string(device), parameters, count);
  call.data.resize(count + constants_.size() + results.size() + 1);
  call.packed.resize(call.data.size());
  call.scalars.resize(count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* used = nullptr;
    PyObject* given = PyTuple_GET_ITEM(call.given.ptr(), static_cast<Py_ssize_t>(i));
    call.data[next++] = argument(i, given, call.scalars[i].data(), call.kept, &used, device);
    arrays[place * count + i] = used;
  }
  for (Block constant : constants_) call.data[next++] = constant.data;
  if (!donate)
    for (std::size_t i = 0; i < results.size(); ++i) call.made.push_back(new_result(i, &call.data[next + i]));
  call.arena = std::make_unique<Arena>(arena_bytes, name);
  call.data.back() = call.arena->data();
  for (std::size_t i = 0; i < call.data.size(); ++i) call.packed[i] = &call.data[i];
}

std::vector<CompiledFunction::DeviceCall> CompiledFunction::prepare_all(const std::vector<nb::object>& arguments,
                                                                        const Placement& where, bool donate) const {
  const std::size_t count = arguments.size();
  check_room(count, donate);
  std::vector<DeviceCall> calls(count);
  std::vector<PyObject*> arrays(count * parameters.size(), nullptr);  // the arguments' arrays
  for (std::size_t i = 0; i < count; ++i) {
    calls[i].given = arguments[i];
    prepare(calls[i], where.here[i], i, arrays, donate);
  }
  const std::size_t first_result = parameters.size() + constants_.size();
  for (std::size_t i = 0; donate && i < count; ++i)
    for (std::size_t k = 0; k < results.size(); ++k) {
      void** data = &calls[i].data[first_result + k];
      calls[i].made.push_back(donated_result(k, data, arrays, i * parameters.size()));
    }
  return calls;
}

void CompiledFunction::place(DeviceCall& call) const {
  call.guard = guarded(call.data.data());
  nb::object given, made;  // memory that handlers' views may refer to
  if (hosted_) {
    given = nb::make_tuple(call.given, nb::cast(call.kept), guard_owner(call.guard));
    made = nb::cast(call.made);
  }
  call.hosted = std::make_unique<HostedRun>(*this, *call.arena, nb::find(*this), std::move(given), std::move(made));
}

void CompiledFunction::run_device(DeviceCall& call, Device& device, ReleasedGil& gil, RunControl& control) const {
  FloatScope scope(program_float_state(flush_denormals));
  DeviceScope number(device.number);
  const bool well = call.hosted->run(reinterpret_cast<Entry>(entry), call.packed.data(), gil, control, call.guard.get(),
                                     &device);
  const Ending why = control.end().why;
  if ((why == Ending::kNone || why == Ending::kInterrupted) && call.hosted->raised().is_set()) {
    Failure said;
    if (transport() != nullptr) said.summary = call.hosted->raised_text();
    device.run->stop(Stop::kRaised, device.number, device.at, nullptr, std::move(said));
  } else {
    device.run->stop_by_control(device);
  }
  device.run->finish(device, well);
}

bool CompiledFunction::run_all(DeviceRun& run, RunKey key, std::vector<DeviceCall>& calls, DeviceThreads& threads,
                               double seconds, RunEnd& end) const {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  ReleasedGil gil;
  CalledRun control(gil, calls[0].hosted->raised());
  const bool well = run.execute(threads, control, seconds, key, [&](std::size_t i) {
    if (i == 0) return run_device(calls[0], run.device(0), gil, control);
    ReleasedGil other(interpreter);
    run_device(calls[i], run.device(i), other, control);
  });
  end = control.end();
  return well;
}

std::vector<std::vector<nb::object>> CompiledFunction::execute_replicated(const std::vector<nb::object>& arguments,
                                                                          bool donate, double seconds) const {
  const RunKey key = this->key();
  const Placement& where = *key.where;
  const std::size_t count = arguments.size();
  if (count == 0 || count != where.here.size())
    cold_path("raise_wrong_devices", kCollectiveErrors)(name, num_devices, where.here.size(), count);
  std::vector<DeviceCall> calls;
  try {
    calls = prepare_all(arguments, where, donate);
  } catch (nb::python_error& error) {
    refuse(nb::str(error.value()).c_str());
    throw;
  }
  std::unique_ptr<DeviceThreads> threads;
  try {
    threads = std::make_unique<DeviceThreads>(count - 1);
  } catch (const std::runtime_error& error) {
    cold_path("raise_no_threads", kCollectiveErrors)(name, error.what());
  }
  std::unique_ptr<DeviceRun> run = take_run(where);
  for (DeviceCall& call : calls) place(call);
  RunEnd end;
  if (!run_all(*run, key, calls, *threads, seconds, end)) raise_stopped(*run, calls, end);
  give_back(std::move(run));
  for (DeviceCall& call : calls)
    if (call.guard != nullptr && !call.guard->check()) raise_outside(call.guard->found());
  for (DeviceCall& call : calls)
    if (call.guard != nullptr) call.guard->give_back();
  std::vector<std::vector<nb::object>> made;
  for (DeviceCall& call : calls) made.push_back(std::move(call.made));
  return made;
}

void CompiledFunction::raise_stopped(DeviceRun& run, std::vector<DeviceCall>& calls, RunEnd end) const {
  for (DeviceCall& call : calls)
    if (call.guard != nullptr && call.guard->has_found()) raise_outside(call.guard->found());
  const auto place = static_cast<std::size_t>(run.where().positions[static_cast<std::size_t>(run.why().device)]);
  if (run.why().kind == Stop::kLimits) raise_ended(name, places, end, calls[0].hosted->raised());
  if (place < calls.size()) calls[place].hosted->raised().rethrow();
  cold_path("raise_stopped", kCollectiveErrors)(name, collective_configs, as_dict(run));
  throw std::runtime_error("collective_errors.raise_stopped came back");
}

}  // namespace stablexla
