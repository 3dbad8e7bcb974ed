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
  const Stop& why = run.why();
  nb::dict dict;
  dict["kind"] = why.text();
  dict["device"] = why.device;
  dict["number"] = why.number;
  dict["group"] = nb::cast(why.group);
  dict["seconds"] = run.seconds();
  dict["said"] = why.said.summary;
  dict["arrived"] = nb::cast(why.said.arrived);
  nb::dict missing;
  for (const auto& [device, where] : why.said.missing) missing[nb::int_(device)] = where;
  dict["missing"] = missing;
  constexpr const char* states[] = {"running", "waiting", "finished", "failed"};
  nb::list devices, unreceived;
  for (const auto& each : why.devices) devices.append(nb::make_tuple(each.device, states[each.state], each.at));
  for (const auto& each : why.unreceived)
    unreceived.append(nb::make_tuple(each.what->number, std::get<1>(each.route), std::get<2>(each.route)));
  dict["devices"] = devices;
  dict["unreceived"] = unreceived;
  return dict;
}

int own_rank() { return transport() != nullptr ? transport()->rank() : 0; }

}  // namespace

void CompiledFunction::read_collectives(nb::sequence configs) {
  place_in(std::vector<int>(static_cast<std::size_t>(num_devices), own_rank()), 0);
  collective_configs = nb::list(configs);
  collectives.reserve(nb::len(collective_configs));
  program_ = 0;
  for (char c : name) program_ = program_ * 31 + static_cast<unsigned char>(c);
  for (nb::handle config : collective_configs) {
    collectives.emplace_back(static_cast<std::int64_t>(collectives.size()), config);
    program_ = program_ * 0x100000001B3u ^ collectives.back().hash();
    for (const auto& group : collectives.back().groups)
      for (int device : group)
        if (device >= num_devices) throw nb::value_error("a group has a device that the program is not for");
  }
}

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

// Runs are pooled: their meetings are many small allocations.
std::unique_ptr<DeviceRun> CompiledFunction::take_run(const Placement& where) const {
  for (auto& idle : idle_runs_)
    if (&idle->where() == &where) {
      auto found = std::move(idle);
      idle = std::move(idle_runs_.back());
      idle_runs_.pop_back();
      return found;
    }
  return std::make_unique<DeviceRun>(collectives, where);
}

void CompiledFunction::place_in(const std::vector<int>& processes, std::uint64_t key) {
  if (static_cast<int>(processes.size()) != num_devices) throw nb::value_error("a process for each device");
  const Placement& where = placement_of(processes, own_rank(), key);
  if (transport() == nullptr && !where.is_whole())
    throw nb::value_error("a device in another process, and MPI was not started");
  where_ = &where;
}

RunKey CompiledFunction::key() const { return {program_ ^ where_->key, 0, where_, source}; }

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

void CompiledFunction::place(DeviceCall& call, Device& device) const {
  call.guard = guarded(call.data.data());
  nb::object given, made;  // memory that handlers' views may refer to
  if (hosted_) {
    given = nb::make_tuple(call.given, nb::cast(call.kept), guard_owner(call.guard));
    made = nb::cast(call.made);
  }
  call.hosted = std::make_unique<HostedRun>(*this, *call.arena, nb::find(*this), std::move(given), std::move(made));
  call.hosted->set_device(&device);
  device.hosted = call.hosted.get();
}

void CompiledFunction::run_device(DeviceCall& call, Device& device, ReleasedGil& gil, RunControl& control) const {
  FloatScope scope(program_float_state(flush_denormals));
  DeviceScope number(device.number);
  const bool well =
      call.hosted->run(reinterpret_cast<Entry>(entry), call.packed.data(), gil, control, device.is_caller,
                       call.guard.get());
  if (const Ending why = control.end().why; why != Ending::kNone && why != Ending::kInterrupted) {
    device.run->stop(Stop::kLimits, device.number);
  } else if (call.hosted->raised().is_set()) {
    Failure said;
    if (transport() != nullptr) said.summary = call.hosted->raised_text();
    device.run->stop(Stop::kRaised, device.number, device.at, nullptr, std::move(said));
  }
  device.run->finish(device, well);
}

bool CompiledFunction::run_all(DeviceRun& run, RunKey key, std::vector<DeviceCall>& calls, DeviceThreads& threads,
                               double seconds, RunEnd& end) const {
  struct Shared {
    const CompiledFunction& function;
    DeviceRun& run;
    std::vector<DeviceCall>& calls;
    PyInterpreterState* interpreter;
    RunControl* control;
  } shared{*this, run, calls, PyInterpreterState_Get(), nullptr};
  const auto job = [](void* context, std::size_t index) {
    const Shared& ours = *static_cast<Shared*>(context);
    ReleasedGil gil(ours.interpreter);
    ours.function.run_device(ours.calls[index + 1], ours.run.device(index + 1), gil, *ours.control);
  };
  const HostedRun* around = innermost_run();
  Device& own = run.device(0);
  ReleasedGil gil;
  calls[0].hosted->set_gil(gil);
  CalledRun control(gil, calls[0].hosted->raised());
  shared.control = &control;
  if (run.begin(control, seconds, around != nullptr ? around->device() : nullptr, key)) {
    threads.start(job, &shared, run.spins());
    run_device(calls[0], own, gil, control);
    run.wait_for_all(own);
  }
  end = control.end();
  return run.end(own);
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
  for (std::size_t i = 0; i < count; ++i) place(calls[i], run->device(i));
  RunEnd end;
  if (!run_all(*run, key, calls, *threads, seconds, end)) raise_stopped(*run, calls, end);
  idle_runs_.push_back(std::move(run));
  for (DeviceCall& call : calls)
    if (call.guard != nullptr && !call.guard->check()) raise_outside(call.guard->found());
  for (DeviceCall& call : calls)
    if (call.guard != nullptr) call.guard->give_back();
  std::vector<std::vector<nb::object>> made;
  for (DeviceCall& call : calls) made.push_back(std::move(call.made));
  return made;
}

// Announces a run that does not begin here, as its arguments were refused: other processes must not wait for it.
void CompiledFunction::refuse(const std::string& why) const {
  Transport* others = where_->is_whole() ? nullptr : transport();
  if (others != nullptr) others->refuse(key(), why);
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
