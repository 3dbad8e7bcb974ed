#include "gpu_function.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arrays.h"
#include "called_run.h"
#include "gpu_call.h"

namespace stablexla::gpu {
namespace {

constexpr const char* kSupport = "stablexla.targets.runtime.gpu_arrays";

}  // namespace

Function::Function(std::string name_, std::uintptr_t entry_, std::vector<ArraySpec> parameters_,
                   std::vector<ArraySpec> results_, std::size_t arena_bytes_, nb::sequence constants,
                   std::map<int, int> aliases_, Kernels kernels_, nb::object image_, std::string chip_,
                   nb::object keep_alive_, nb::object host_, bool flush_denormals_,
                   std::map<std::int64_t, std::string> places_)
    : HostTable(std::move(host_), 1),
      name(std::move(name_)),
      entry(entry_),
      parameters(std::move(parameters_)),
      results(std::move(results_)),
      arena_bytes(arena_bytes_),
      aliases(std::move(aliases_)),
      kernels(std::move(kernels_)),
      image(std::move(image_)),
      chip(std::move(chip_)),
      keep_alive(std::move(keep_alive_)),
      flush_denormals(flush_denormals_),
      places(std::move(places_)) {
  if (entry == 0) throw nb::value_error("the entry address is 0: the function was not found in the machine code");
  for (auto [result, parameter] : aliases)
    if (result < 0 || parameter < 0 || std::size_t(result) >= results.size() ||
        std::size_t(parameter) >= parameters.size() ||
        results[std::size_t(result)].bytes != parameters[std::size_t(parameter)].bytes)
      throw nb::value_error("an alias names arrays that are not there, or of different sizes");
  for (nb::handle constant : constants) constants_.push_back(cold_path("bytes_of", kSupport)(constant));
}

Function::~Function() = default;

std::string Function::place(std::size_t i) const {
  const std::string& parameter = parameters[i].name;
  return name + ": parameter " + std::to_string(i) + (parameter.empty() ? "" : " (" + parameter + ")");
}

nb::list Function::constant_bytes() const {
  nb::list list;
  for (const nb::object& each : constants_) list.append(each);
  return list;
}

std::string Function::repr() const {
  auto list = [](const std::vector<ArraySpec>& specs, bool names) {
    std::string text;
    for (const ArraySpec& spec : specs)
      text += (text.empty() ? "" : ", ") + (names && !spec.name.empty() ? spec.name + ": " : "") + spec.text();
    return "(" + text + ")";
  };
  return "<GpuFunction " + name + list(parameters, true) + " -> " + list(results, false) + ">";
}

std::string Function::image_bytes(const std::string& made_for) const {
  const nb::object made = image(made_for);
  if (!PyBytes_Check(made.ptr())) throw nb::type_error("image(chip) gave no bytes");
  return {PyBytes_AS_STRING(made.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(made.ptr()))};
}

LoadedProgram& Function::load(Device& device) {
  auto found = loaded_.find(&device);
  if (found != loaded_.end()) return *found->second;
  std::vector<HostBytes> constants;
  for (const nb::object& each : constants_)
    constants.push_back({reinterpret_cast<const void*>(nb::cast<std::uintptr_t>(each.attr("ctypes").attr("data"))),
                         nb::cast<std::size_t>(each.attr("nbytes"))});
  std::unique_ptr<LoadedProgram> loaded;
  const auto load_image = [&](const std::string& made_for) {
    const std::string bytes = kernels.empty() ? "" : image_bytes(made_for);
    with_memory(device, [&](ReleasedGil&) {
      device.check_alive();
      loaded = std::make_unique<LoadedProgram>(device, name, chip, bytes, kernels, constants);
    });
  };
  try {
    load_image(device.chip());
  } catch (const UnloadableCubin&) {
    load_image("");
  }
  auto& kept = loaded_[&device];  // another thread may have loaded it meanwhile
  if (kept == nullptr) kept = std::move(loaded);
  return *kept;
}

std::vector<nb::object> Function::execute(PyObject* const* given, std::size_t count, bool donate,
                                          Timings* timings) {
  if (count != parameters.size()) cold_path("raise_wrong_count")(name, parameters, count);
  let_go();
  Call call;
  call.arguments.resize(count);
  find_device(call, given);
  call.program = &load(*call.device);
  for (std::size_t i = 0; i < count; ++i) take_argument(call, i, given[i]);
  call.results.resize(results.size());
  if (donate) take_donated(call);
  lay_out(call);
  if (!call.is_on_device)
    for (const ArraySpec& spec : results) {
      call.host_data.push_back(nullptr);
      call.host_results.push_back(new_host_array(spec, &call.host_data.back()));
    }
  Run run(*call.program, call.stream);
  run.timings = timings;
  if (timings != nullptr) timings->device = call.device;
  std::optional<HostedRun> hosted;
  if (!host.is_none()) hosted.emplace(*this, run.staging, nb::find(*this), nb::none(), nb::none());
  Raised own;
  Raised& raised = hosted ? hosted->raised() : own;
  RunEnd end;
  try {
    with_memory(*call.device, [&](ReleasedGil& gil) {
      CalledRun control(gil, raised);
      this->run(call, run, hosted ? &*hosted : nullptr, gil, control);
      end = control.end();
    });
  } catch (...) {
    finish(call);
    throw;
  }
  finish(call);
  raise_ended(name, places, end, raised);
  if (!call.is_on_device) return std::move(call.host_results);
  std::vector<nb::object> made;
  for (std::size_t i = 0; i < results.size(); ++i) {
    call.results[i]->written = call.end;
    made.push_back(nb::cast(DeviceArray(results[i], call.results[i])));
  }
  return made;
}

nb::list Function::launch_times(nb::sequence given) {
  nb::object arguments = nb::steal(PySequence_Tuple(given.ptr()));
  if (!arguments.is_valid()) throw nb::python_error();
  auto* tuple = reinterpret_cast<PyTupleObject*>(arguments.ptr());
  Timings timings;
  std::vector<nb::object> made =
      execute(tuple->ob_item, static_cast<std::size_t>(PyTuple_GET_SIZE(arguments.ptr())), false, &timings);
  nb::list times;
  if (timings.all.empty()) return times;
  Device& device = *timings.device;
  ContextScope scope(device);
  for (const Timing& timing : timings.all) {
    float milliseconds = 0;
    device.check(device.cu.cuEventSynchronize(timing.end), "waiting for a launch");
    device.check(device.cu.cuEventElapsedTime(&milliseconds, timing.begin, timing.end),
                 "asking how long a launch took");
    times.append(nb::make_tuple(kernels[static_cast<std::size_t>(timing.kernel)].first, 1000.0 * milliseconds));
  }
  return times;
}

}  // namespace stablexla::gpu
