#include "gpu_call.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "arrays.h"
#include "float_mode.h"

namespace stablexla::gpu {
namespace {

constexpr const char* kSupport = "stablexla.targets.runtime.gpu_arrays";

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_device_array(PyObject* given) {
  static PyObject* type = nb::type<DeviceArray>().ptr();
  return reinterpret_cast<PyObject*>(Py_TYPE(given)) == type;
}

}  // namespace

// Chooses the device: that of the arguments, else that of the chosen stream, else the first one.
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
      } catch (nb::python_error& error) {  // reported where the argument is read
        if (!error.matches(PyExc_Exception)) throw;
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

// Places results in the memory of their donated arguments, where no other argument aliases it.
void Function::take_donated(Call& call) const {
  for (auto [result, parameter] : aliases) {
    const auto number = static_cast<std::size_t>(parameter);
    Argument& given = call.arguments[number];
    const std::size_t bytes = parameters[number].bytes;
    if (!given.device || bytes == 0 || given.is_read_only || given.address % kParameterAlignment != 0) continue;
    if (given.block != nullptr && given.block->is_used_by_others) continue;  // on unknown streams: cannot synchronize
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

// Assigns offsets in the call's memory: temporaries, results for the host, copies of arguments.
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

// Keeps arguments alive until the program has finished with them.
void Function::finish(Call& call) const {
  if (call.copied != nullptr) {  // it failed after that
    try {
      ContextScope scope(*call.device);
      call.copied->wait();
    } catch (const Error&) {
      return;
    }
  }
  if (call.end == nullptr && call.is_on_device) {
    try {
      ContextScope scope(*call.device);
      call.end = call.device->record_or_wait(call.stream);
    } catch (const Error&) {
      return;  // the context is lost, and no work runs there
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
void Function::run(Call& call, Run& run, HostedRun* hosted, ReleasedGil& gil, RunControl& control) const {
  Device& device = *call.device;
  Scratch scratch{0, call.bytes, call.home, call.stream};
  scratch.take(device, "arguments and temporaries of " + name);
  const auto at = [&](std::size_t offset) { return reinterpret_cast<void*>(scratch.address + offset); };
  for (const BlockRef& donated : call.results)
    if (donated != nullptr) call.stream->wait_for(*donated->home);  // uses on its own stream are not recorded
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
  call.stream->wait_for(*call.home);  // the stream that the memory was allocated on
  for (const MomentRef& moment : call.awaited)
    if (moment->stream->handle != call.stream->handle) call.stream->wait_for(moment->event);
  copy_arguments(call);
  bool through;
  {
    FloatScope scope(program_float_state(flush_denormals));
    through = run.run(reinterpret_cast<Entry>(entry), call.packed.data(), hosted, gil, control);
  }
  if (run.error) throw *run.error;
  if (!through) return;  // a host function raised, or it was stopped
  if (!call.is_on_device) return copy_results(call);
  call.end = device.record(call.stream);
  if (call.copied != nullptr) std::exchange(call.copied, nullptr)->wait();
}

void Function::copy_arguments(Call& call) const {
  Device& device = *call.device;
  const cuda::Stream stream = call.stream->handle;
  const auto target = [&](std::size_t i) { return reinterpret_cast<cuda::Address>(call.data[i]); };
  PinnedScope pinned(call.stream, call.small_bytes);
  cuda::Address small_begin = 0;
  bool has_large = false;
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
      has_large = true;
      device.check(device.cu.cuMemcpyHtoDAsync_v2(target(i), argument.host, size, stream), "copying an argument");
    }
  }
  if (small_begin != 0)
    device.check(device.cu.cuMemcpyHtoDAsync_v2(small_begin, pinned.data(), call.small_bytes, stream),
                 "copying arguments");
  if (has_large && call.is_on_device) call.copied = device.record(call.stream);
}

// Synchronizes. Small results are copied together, through pinned memory.
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

}  // namespace stablexla::gpu
