#include "gpu_function.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "arrays.h"
#include "float_mode.h"
#include "gpu_call.h"

namespace stablexla::gpu {
namespace {

constexpr const char* kSupport = "stablexla.targets.runtime.gpu_arrays";

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_device_array(PyObject* given) {
  static PyObject* type = nb::type<DeviceArray>().ptr();
  return reinterpret_cast<PyObject*>(Py_TYPE(given)) == type;
}

}  // namespace

Function::Function(std::string name_, std::uintptr_t entry_, std::vector<ArraySpec> parameters_,
                   std::vector<ArraySpec> results_, std::size_t arena_bytes_, nb::sequence constants,
                   std::map<int, int> aliases_, Kernels kernels_, nb::object image_, std::string chip_,
                   nb::object keep_alive_, nb::object host_, bool flush_denormals_)
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
      flush_denormals(flush_denormals_) {
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
  auto& kept = loaded_[&device];  // another thread may have been quicker
  if (kept == nullptr) kept = std::move(loaded);
  return *kept;
}

// Which device the program runs on: that of its arguments, else that of the chosen stream, else the first one.
void Function::find_device(Call& call, PyObject* const* given) const {
  Driver& driver = Driver::get();
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    Argument& argument = call.arguments[i];
    Device* at = nullptr;
    if (is_device_array(given[i])) {
      at = &nb::inst_ptr<DeviceArray>(given[i])->device();
      argument.device = at->number;
    } else if (!is_plain_host_value(given[i])) {
      try {
        argument.device = device_of(given[i]);
      } catch (nb::python_error&) {  // what it is, is found out where it is read
      }
      if (argument.device) at = &driver.device(*argument.device);
    }
    if (at == nullptr) continue;
    if (call.device != nullptr && call.device != at)
      cold_path("raise_other_device", kSupport)(place(i), at->number, call.device->number);
    call.device = at;
  }
  call.is_on_device = call.device != nullptr;
  if (call.device == nullptr)
    call.device = chosen_streams().empty() ? &driver.device(0) : &chosen_streams().back()->device;
  call.device->check_alive();
  call.stream = current_stream(*call.device);
  call.home = call.stream->is_ours ? call.stream : call.device->default_stream();
}

void Function::take_argument(Call& call, std::size_t i, PyObject* given) const {
  Argument& argument = call.arguments[i];
  if (!argument.device)
    argument.host = host_argument(parameters[i], given, argument.scalar.data(), call.kept, name, i);
  else if (is_device_array(given))
    take_device_array(call, i, given);
  else
    take_foreign(call, i, given);
}

void Function::take_device_array(Call& call, std::size_t i, PyObject* given) const {
  const auto& array = *nb::inst_ptr<DeviceArray>(given);
  const ArraySpec& spec = parameters[i];
  if (array.spec.shape != spec.shape || !array.spec.dtype.equal(spec.dtype))
    cold_path("raise_unfit", kSupport)(place(i), spec, array.spec.dtype, array.spec.shape_tuple());
  Argument& argument = call.arguments[i];
  argument.block = array.block;
  argument.address = array.address();
  if (array.block->written != nullptr) call.awaited.push_back(array.block->written);
}

void Function::take_foreign(Call& call, std::size_t i, PyObject* given) const {
  Foreign found;
  try {
    found = foreign_array(given, *call.stream);
  } catch (nb::python_error& error) {
    cold_path("raise_unreadable", kSupport)(place(i), nb::handle(given), error.value());
  }
  check_fits(parameters[i], place(i), found);
  Argument& argument = call.arguments[i];
  argument.address = parameters[i].bytes != 0 ? found.address : kNothing;
  argument.owner = std::move(found.owner);
  argument.is_read_only = found.is_read_only;
}

// Results in the memory of their donated arguments, where nothing else lies there.
void Function::take_donated(Call& call) const {
  for (auto [result, parameter] : aliases) {
    const auto number = static_cast<std::size_t>(parameter);
    Argument& given = call.arguments[number];
    const std::size_t bytes = parameters[number].bytes;
    if (!given.device || bytes == 0 || given.is_read_only || given.address % kParameterAlignment != 0) continue;
    bool is_alone = true;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const cuda::Address other = call.arguments[i].address;
      if (i != number && call.arguments[i].device && other < given.address + bytes &&
          given.address < other + parameters[i].bytes)
        is_alone = false;
    }
    if (!is_alone) continue;
    if (given.block == nullptr)
      given.block = std::make_shared<Block>(*call.device, given.address, bytes, call.home, std::move(given.owner));
    for (const MomentRef& use : given.block->uses) call.awaited.push_back(use);
    call.results[static_cast<std::size_t>(result)] = given.block;
  }
}

// Where everything goes in the memory of the call: temporaries, results for the host, copies of arguments.
void Function::lay_out(Call& call) const {
  call.bytes = aligned(arena_bytes);
  call.results_offset = call.bytes;
  if (!call.is_on_device)
    for (const ArraySpec& spec : results) {
      call.result_offsets.push_back(call.bytes);
      call.bytes += aligned(spec.bytes);
    }
  call.results_bytes = call.bytes - call.results_offset;
  call.small_offset = call.bytes;
  for (const bool small : {true, false}) {
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      Argument& argument = call.arguments[i];
      const std::size_t size = parameters[i].bytes;
      const bool is_here = argument.device && argument.address % kParameterAlignment == 0;
      const bool is_small = !argument.device && size <= kSmallArgument;
      if (is_here || is_small != small) continue;
      argument.copied_to = call.bytes;
      call.bytes += aligned(size);
    }
    if (small) call.small_bytes = call.bytes - call.small_offset;
  }
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
  try {
    with_memory(*call.device, [&](ReleasedGil& gil) { this->run(call, run, hosted ? &*hosted : nullptr, gil); });
  } catch (...) {
    finish(call);
    throw;
  }
  finish(call);
  if (hosted) hosted->rethrow();
  if (!call.is_on_device) return std::move(call.host_results);
  std::vector<nb::object> made;
  for (std::size_t i = 0; i < results.size(); ++i) {
    call.results[i]->written = call.end;
    made.push_back(nb::cast(DeviceArray(results[i], call.results[i])));
  }
  return made;
}

// Arguments stay until the program is done with them.
void Function::finish(Call& call) const {
  if (call.end == nullptr && call.is_on_device) {
    try {
      ContextScope scope(*call.device);
      call.end = call.device->record(call.stream);
    } catch (const Error&) {
      return;  // the context is lost, and nothing runs there
    }
  }
  if (call.end == nullptr) return;
  for (Argument& argument : call.arguments) {
    if (argument.block != nullptr) argument.block->note_use(call.end);
    if (argument.owner.is_valid()) keep_until(call.end, std::move(argument.owner));
  }
  for (const BlockRef& result : call.results)
    if (result != nullptr) result->note_use(call.end);
}

// Without the GIL and with the context.
void Function::run(Call& call, Run& run, HostedRun* hosted, ReleasedGil& gil) const {
  Device& device = *call.device;
  Scratch scratch{0, call.bytes, call.home, call.stream};
  scratch.take(device, "arguments and temporaries of " + name);
  const auto at = [&](std::size_t offset) { return reinterpret_cast<void*>(scratch.address + offset); };
  if (call.is_on_device)
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (call.results[i] != nullptr) continue;
      const cuda::Address address = device.memory().take(results[i].bytes, *call.home, "a result of " + name);
      call.results[i] = std::make_shared<Block>(device, address, results[i].bytes, call.home);
    }
  call.data.clear();
  for (const Argument& argument : call.arguments)
    call.data.push_back(argument.copied_to ? at(*argument.copied_to) : reinterpret_cast<void*>(argument.address));
  for (cuda::Address constant : call.program->constants) call.data.push_back(reinterpret_cast<void*>(constant));
  for (std::size_t i = 0; i < results.size(); ++i)
    call.data.push_back(call.is_on_device ? reinterpret_cast<void*>(call.results[i]->address)
                                          : at(call.result_offsets[i]));
  call.data.push_back(at(call.arena_offset));
  call.packed.clear();
  for (void*& each : call.data) call.packed.push_back(&each);
  call.stream->wait_for(*call.home);  // where the memory was taken
  for (const MomentRef& moment : call.awaited)
    if (moment->stream->handle != call.stream->handle) call.stream->wait_for(moment->event);
  copy_arguments(call);
  bool through;
  {
    FloatScope scope(program_float_state(flush_denormals));
    through = run.run(reinterpret_cast<Entry>(entry), call.packed.data(), hosted, gil);
  }
  if (run.error) throw *run.error;
  if (!through) return;  // a function of the host raised
  if (call.is_on_device)
    call.end = device.record(call.stream);
  else
    copy_results(call);
}

void Function::copy_arguments(Call& call) const {
  Device& device = *call.device;
  const cuda::Stream stream = call.stream->handle;
  const auto target = [&](std::size_t i) { return reinterpret_cast<cuda::Address>(call.data[i]); };
  PinnedScope pinned(call.stream, call.small_bytes);
  cuda::Address small_begin = 0;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    const std::size_t size = parameters[i].bytes;
    if (size == 0) continue;
    if (argument.device) {
      if (argument.copied_to)
        device.check(device.cu.cuMemcpyDtoDAsync_v2(target(i), argument.address, size, stream), "copying an argument");
    } else if (size <= kSmallArgument) {
      const std::size_t place = *argument.copied_to - call.small_offset;
      small_begin = target(i) - place;
      std::memcpy(pinned.data() + place, argument.host, size);
    } else {
      device.check(device.cu.cuMemcpyHtoDAsync_v2(target(i), argument.host, size, stream), "copying an argument");
    }
  }
  if (small_begin != 0)
    device.check(device.cu.cuMemcpyHtoDAsync_v2(small_begin, pinned.data(), call.small_bytes, stream),
                 "copying arguments");
}

// Waits. Small ones come together, through pinned memory.
void Function::copy_results(Call& call) const {
  Device& device = *call.device;
  const std::size_t first = parameters.size() + call.program->constants.size();
  const auto source = [&](std::size_t i) { return reinterpret_cast<cuda::Address>(call.data[first + i]); };
  const bool is_small = call.results_bytes != 0 && call.results_bytes <= kSmallArgument;
  PinnedScope pinned(call.stream, is_small ? call.results_bytes : 0);
  if (is_small)
    device.check(
        device.cu.cuMemcpyDtoHAsync_v2(pinned.data(), source(0), call.results_bytes, call.stream->handle),
        "copying results");
  for (std::size_t i = 0; !is_small && i < results.size(); ++i)
    if (results[i].bytes != 0)
      device.check(
          device.cu.cuMemcpyDtoHAsync_v2(call.host_data[i], source(i), results[i].bytes, call.stream->handle),
          "copying a result");
  call.stream->wait();
  for (std::size_t i = 0; is_small && i < results.size(); ++i)
    std::memcpy(call.host_data[i], pinned.data() + (call.result_offsets[i] - call.results_offset), results[i].bytes);
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
    device.check(device.cu.cuEventElapsedTime(&milliseconds, timing.begin, timing.end), "asking how long a launch took");
    times.append(nb::make_tuple(kernels[static_cast<std::size_t>(timing.kernel)].first, 1000.0 * milliseconds));
  }
  return times;
}

}  // namespace stablexla::gpu
