// Runs of a program over the arrays that JAX passes: checks, donation, results.
#include <algorithm>
#include <chrono>

#include "pjrt_objects.h"
#include "pjrt_queue.h"

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

using Clock = std::chrono::steady_clock;

// Handing a run over costs two threads' waking up: one that takes less than many times that runs where it was called.
constexpr std::int64_t kQuick = 1'000'000;  // ns
constexpr std::int64_t kSmall = 1 << 16;  // bytes of a program that has not run yet

struct Call {
  std::shared_ptr<PJRT_Executable> executable;
  PJRT_Executable& program;
  std::vector<std::vector<PJRT_Buffer*>> buffers;
  Memories arguments, results;
  std::vector<std::shared_ptr<Outcome>> awaited;  // of the arguments that are not made yet

  PJRT_Error* take_arguments(const PJRT_LoadedExecutable_Execute_Args& args);
  void donate(const PJRT_ExecuteOptions* options, bool in_turn);
  PJRT_Error* make_results();
  bool is_quick() const;
  PJRT_Error* run();
  void give_results(const PJRT_LoadedExecutable_Execute_Args& args, const std::shared_ptr<Outcome>& done);
};

PJRT_Error* Call::take_arguments(const PJRT_LoadedExecutable_Execute_Args& args) {
  for (std::size_t d = 0; d < args.num_devices; ++d) {
    buffers.emplace_back();
    arguments.emplace_back();
    for (int i : program.takes) {
      buffers[d].push_back(args.argument_lists[d][i]);
      arguments[d].push_back(buffers[d].back()->storage());
      const PJRT_Buffer& given = *buffers[d].back();
      const Parameter& wanted = program.parameters[arguments[d].size() - 1];
      if (arguments[d].back() == nullptr)
        return error(kInvalidArgument, place(program, d, i) + " has been deleted or donated");
      if (given.type != wanted.type || given.dims != wanted.dims)
        return error(kInvalidArgument, place(program, d, i) + ": " + text_of({given.type, given.dims}) + " given, " +
                                           text_of(wanted) + " needed");
      if (given.order != wanted.order)
        return error(kInvalidArgument,
                     place(program, d, i) + " has the layout " +
                         PJRT_Layouts_MemoryLayout(given.order, given.dims.size()).text +
                         ", where the program takes " + program.argument_layouts[static_cast<std::size_t>(i)].text);
      if (buffers[d].back()->made != nullptr) awaited.push_back(buffers[d].back()->made);
    }
    for (int parameter : program.donated) {
      const auto& row = buffers[d];
      const PJRT_Buffer* given = row[static_cast<std::size_t>(parameter)];
      if (is_kept(args.options, program.takes[static_cast<std::size_t>(parameter)])) continue;
      if (std::count(row.begin(), row.end(), given) > 1)
        return error(kInvalidArgument, place(program, d, program.takes[static_cast<std::size_t>(parameter)]) +
                                           " is donated, and is another argument, too");
    }
  }
  return nullptr;
}

// Donated arguments are deleted; a result may take the memory of one that nobody else uses. A run in the queue may take
// it from those before it in the queue, too, since they are done by then.
void Call::donate(const PJRT_ExecuteOptions* options, bool in_turn) {
  results.resize(buffers.size());
  for (auto& of_device : results) of_device.resize(program.outputs.size());
  for (std::size_t d = 0; d < buffers.size(); ++d) {
    std::vector<bool> given(program.takes.size(), false);
    for (int parameter : program.donated) {
      PJRT_Buffer* buffer = buffers[d][static_cast<std::size_t>(parameter)];
      if (is_kept(options, program.takes[static_cast<std::size_t>(parameter)]) || buffer->is_held()) continue;
      buffer->take();
      given[static_cast<std::size_t>(parameter)] = true;
    }
    for (std::size_t r = 0; r < program.outputs.size(); ++r) {
      const int alias = program.outputs[r].alias;
      if (alias < 0 || !given[static_cast<std::size_t>(alias)]) continue;
      const std::shared_ptr<Storage>& storage = arguments[d][static_cast<std::size_t>(alias)];
      const long uses = storage.use_count();  // first: runs that end between the two reads must count as uses
      const long known = 1 + (in_turn ? storage->queued.load() : 0);
      if (uses <= known && storage->is_ours() && storage->bytes == program.outputs[r].bytes) results[d][r] = storage;
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

bool Call::is_quick() const {
  const std::int64_t last = program.nanoseconds.load(std::memory_order_relaxed);
  const std::int64_t bytes = program.argument_bytes + program.output_bytes + program.arena_bytes;
  return last < 0 ? bytes < kSmall : last < kQuick;
}

PJRT_Error* Call::run() {
  for (const auto& each : awaited) {
    if (!each->wait()) return stopped(program.name, true);
    if (PJRT_Error* failure = each->failure()) return failure;
  }
  const TracedSpan span(program.first_mark.load(std::memory_order_relaxed));
  const auto start = Clock::now();
  if (PJRT_Error* failure = program.run(arguments, results)) return failure;
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  program.nanoseconds.store(spent.count(), std::memory_order_relaxed);
  return nullptr;
}

void Call::give_results(const PJRT_LoadedExecutable_Execute_Args& args, const std::shared_ptr<Outcome>& done) {
  for (std::size_t d = 0; d < args.num_devices; ++d) {
    for (std::size_t r = 0; r < program.outputs.size(); ++r) {
      const Output& output = program.outputs[r];
      PJRT_Device* device = args.execute_device != nullptr ? args.execute_device : program.devices[d];
      if (output.is_token()) results[d][r] = Storage::of_pool(0);
      args.output_lists[d][r] =
          new PJRT_Buffer(output.type, output.dims, device->memories[output.kind], results[d][r], output.order, done);
    }
    if (args.device_complete_events != nullptr)
      args.device_complete_events[d] = done == nullptr ? done_event() : new PJRT_Event{done};
  }
}

void count_uses(const Memories& memories, int change) {
  for (const auto& of_device : memories)
    for (const auto& each : of_device)
      if (each != nullptr) each->queued.fetch_add(change);
}

std::shared_ptr<Outcome> failed(PJRT_Error* failure) {
  auto made = std::make_shared<Outcome>();
  made->set(std::unique_ptr<PJRT_Error>(failure));
  return made;
}

// A call that is not made, as a signal's handler has raised: its results are errors.
PJRT_Error* interrupted_call(Call call, const PJRT_LoadedExecutable_Execute_Args& args, PJRT_Error* why) {
  const std::shared_ptr<Outcome> outcome = failed(why);
  call.results.assign(args.num_devices, std::vector<std::shared_ptr<Storage>>(call.program.outputs.size()));
  if (PJRT_Error* failure = call.make_results()) return failure;
  call.give_results(args, outcome);
  return nullptr;
}

// Puts the run into the queue. Order matters: what takes its arguments later is after it in the queue.
PJRT_Error* start(Call call, const PJRT_LoadedExecutable_Execute_Args& args) {
  std::unique_lock<std::mutex> lock(turn(), std::defer_lock);
  if (!wait_for_room(static_cast<std::size_t>(call.program.output_bytes), lock))
    return interrupted_call(std::move(call), args, stopped(call.program.name, true));
  if (PJRT_Error* failure = call.take_arguments(args)) return failure;
  call.donate(args.options, true);
  if (PJRT_Error* failure = call.make_results()) return failure;
  const auto done = std::make_shared<Outcome>();
  call.give_results(args, done);
  count_uses(call.arguments, 1);
  count_uses(call.results, 1);
  const auto bytes = static_cast<std::size_t>(call.program.output_bytes);
  auto shared = std::make_shared<Call>(std::move(call));
  enqueue(bytes, [shared, done] {
    std::unique_ptr<PJRT_Error> failure(shared->run());
    for (Memories* each : {&shared->arguments, &shared->results}) {
      for (auto& of_device : *each)
        for (auto& storage : of_device) {
          if (storage == nullptr) continue;
          std::atomic<int>& queued = storage->queued;
          const std::shared_ptr<Storage> last = std::move(storage);
          queued.fetch_sub(1);
        }
    }
    done->set(std::move(failure));
  });
  return nullptr;
}

PJRT_Error* start_without_gil(const Call& call, const PJRT_LoadedExecutable_Execute_Args& args) {
  PJRT_Error* failure = nullptr;
  wait_without_gil([&] { failure = start(Call{call.executable, call.program, {}, {}, {}, {}}, args); });
  return failure;
}

// Seconds for which a device waits for others, which may still compute.
constexpr double kTimeLimit = 300;

using Storages = std::vector<std::shared_ptr<Storage>>;

// Those of a device, in the order of the code's; the last place is the arena's.
std::vector<void*> buffers_of(const PlainCode& code, const Storages& arguments, const Storages& results) {
  std::vector<void*> buffers;
  buffers.reserve(arguments.size() + code.constants.size() + results.size() + 1);
  for (const auto& each : arguments) buffers.push_back(each->data);
  buffers.insert(buffers.end(), code.constants.begin(), code.constants.end());
  for (const auto& each : results)
    if (each != nullptr) buffers.push_back(each->data);
  buffers.push_back(nullptr);
  return buffers;
}

}  // namespace

PJRT_Error* run_code(const PlainCode& code, const DeviceProgram* devices, const Memories& arguments,
                     const Memories& results, RunControl& control) {
  PlainEnd end;
  if (devices == nullptr) {
    std::vector<void*> buffers = buffers_of(code, arguments[0], results[0]);
    end = run_plain(code, buffers, control);
  } else {
    std::vector<std::vector<void*>> buffers;
    for (std::size_t d = 0; d < arguments.size(); ++d) buffers.push_back(buffers_of(code, arguments[d], results[d]));
    try {
      end = devices->run_plain(code, buffers, kTimeLimit, control);
    } catch (const std::runtime_error& failure) {
      return error(kResourceExhausted, code.name + ": " + failure.what());
    }
  }
  switch (end.why) {
    case Ending::kNone: return nullptr;
    case Ending::kInterrupted:
    case Ending::kCancelled: return stopped(code.name, end.why == Ending::kInterrupted);
    case Ending::kNoMemory:
      return error(kResourceExhausted, code.name + ": no memory for " + std::to_string(code.arena_bytes) +
                                           " bytes for temporaries, or for the work space of a kernel");
    case Ending::kDevices:
    case Ending::kFailed: return error(kInternal, end.said);
    default: return error(kCancelled, code.name + ": the run that it is called from is to end");
  }
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args& args, bool waits) {
  if (args.executable->is_deleted.load()) return error(kFailedPrecondition, "the program has been deleted");
  const std::shared_ptr<PJRT_Executable>& executable = args.executable->program;
  PJRT_Executable& program = *executable;
  if (args.num_devices != program.devices.size())
    return error(kInvalidArgument, program.name + ": arguments for " + std::to_string(args.num_devices) +
                                       " devices, where the program is for " + std::to_string(program.devices.size()));
  if (args.num_args != program.num_arguments)
    return error(kInvalidArgument, program.name + ": " + std::to_string(args.num_args) + " arguments, where it takes " +
                                       std::to_string(program.num_arguments));
  Call call{executable, program, {}, {}, {}, {}};
  if (tracing.load(std::memory_order_relaxed))
    if (PJRT_Error* failure = prepare_trace(program)) return interrupted_call(std::move(call), args, failure);
  const bool may_start = !waits && !program.needs_python();
  if (may_start && !call.is_quick()) return start_without_gil(call, args);
  if (PJRT_Error* failure = call.take_arguments(args)) return failure;
  if (may_start)
    for (const auto& each : call.awaited)
      if (!each->is_good()) return start_without_gil(call, args);  // what failed fails where the result is read
  call.donate(args.options, false);
  if (PJRT_Error* failure = call.make_results()) return failure;
  PJRT_Error* failure = call.run();
  if (failure != nullptr && !failure->is_raised) return failure;
  call.arguments.clear();
  call.give_results(args, failure == nullptr ? nullptr : failed(failure));
  return nullptr;
}

}  // namespace stablexla::pjrt
