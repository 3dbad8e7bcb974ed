// Runs of a program over the arrays that JAX passes: checks, donation, results.
#include <algorithm>
#include <cstring>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

namespace {

std::string place(const PJRT_Executable& program, std::size_t device, int argument) {
  const std::string on = program.devices.size() > 1 ? " on device " + std::to_string(device) : "";
  return program.name + ": argument " + std::to_string(argument) + on;
}

bool is_kept(const PJRT_ExecuteOptions* options, int parameter) {
  if (options == nullptr) return false;
  const auto* first = options->non_donatable_input_indices;
  const auto* last = first + options->num_non_donatable_input_indices;
  return std::find(first, last, parameter) != last;
}

struct Call {
  PJRT_Executable& program;
  std::vector<std::vector<PJRT_Buffer*>> buffers;
  Memories arguments, results;

  PJRT_Error* take_arguments(const PJRT_LoadedExecutable_Execute_Args& args);
  void donate(const PJRT_ExecuteOptions* options);
  PJRT_Error* make_results();
};

PJRT_Error* Call::take_arguments(const PJRT_LoadedExecutable_Execute_Args& args) {
  for (std::size_t d = 0; d < args.num_devices; ++d) {
    buffers.emplace_back();
    arguments.emplace_back();
    for (int i : program.takes) {
      buffers[d].push_back(args.argument_lists[d][i]);
      arguments[d].push_back(buffers[d].back()->storage());
      if (arguments[d].back() == nullptr)
        return error(kInvalidArgument, place(program, d, i) + " has been deleted or donated");
    }
  }
  return nullptr;
}

// Donated arguments are deleted; a result may take the memory of one that nobody else uses.
void Call::donate(const PJRT_ExecuteOptions* options) {
  results.resize(buffers.size());
  for (auto& of_device : results) of_device.resize(program.outputs.size());
  for (std::size_t d = 0; d < buffers.size(); ++d) {
    std::vector<bool> given(program.takes.size(), false);
    for (int parameter : program.donated) {
      PJRT_Buffer* buffer = buffers[d][static_cast<std::size_t>(parameter)];
      if (is_kept(options, program.takes[static_cast<std::size_t>(parameter)]) || buffer->references.load() != 0) continue;
      buffer->take();
      given[static_cast<std::size_t>(parameter)] = true;
    }
    for (std::size_t r = 0; r < program.outputs.size(); ++r) {
      const int alias = program.outputs[r].alias;
      if (alias < 0 || !given[static_cast<std::size_t>(alias)]) continue;
      const std::shared_ptr<Storage>& storage = arguments[d][static_cast<std::size_t>(alias)];
      // One use is this call's own.
      if (storage.use_count() == 1 && storage->is_ours() && storage->bytes == program.outputs[r].bytes)
        results[d][r] = storage;
    }
  }
}

PJRT_Error* Call::make_results() {
  for (auto& of_device : results)
    for (std::size_t r = 0; r < of_device.size(); ++r) {
      if (program.outputs[r].is_token()) continue;
      if (of_device[r] == nullptr) of_device[r] = Storage::of_pool(program.outputs[r].bytes);
      if (of_device[r] == nullptr)
        return error(kResourceExhausted,
                     program.name + ": " + std::to_string(program.outputs[r].bytes) + " bytes for a result");
    }
  return nullptr;
}

}  // namespace

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args& args) {
  if (args.executable->is_deleted.load()) return error(kFailedPrecondition, "the program has been deleted");
  PJRT_Executable& program = *args.executable->program;
  if (args.num_devices != program.devices.size())
    return error(kInvalidArgument, program.name + ": arguments for " + std::to_string(args.num_devices) +
                                       " devices, where the program is for " + std::to_string(program.devices.size()));
  if (args.num_args != program.num_arguments)
    return error(kInvalidArgument, program.name + ": " + std::to_string(args.num_args) + " arguments, where it takes " +
                                       std::to_string(program.num_arguments));
  Call call{program, {}, {}, {}};
  if (PJRT_Error* failure = call.take_arguments(args)) return failure;
  call.donate(args.options);
  if (PJRT_Error* failure = call.make_results()) return failure;
  if (PJRT_Error* failure = program.run(call.arguments, call.results)) return failure;
  for (std::size_t d = 0; d < args.num_devices; ++d) {
    for (std::size_t r = 0; r < program.outputs.size(); ++r) {
      const Output& output = program.outputs[r];
      PJRT_Device* device = args.execute_device != nullptr ? args.execute_device : program.devices[d];
      if (output.is_token()) call.results[d][r] = Storage::of_pool(0);
      args.output_lists[d][r] =
          new PJRT_Buffer(output.type, output.dims, device->memories.front(), std::move(call.results[d][r]));
    }
    if (args.device_complete_events != nullptr) args.device_complete_events[d] = done_event();
  }
  return nullptr;
}

}  // namespace stablexla::pjrt
