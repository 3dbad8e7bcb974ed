#include "ffi_call.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>


namespace stablexla {
namespace ffi {

constexpr int kUnknown = 2;

struct Error {
  std::string message;
  int code = kUnknown;
};

// Completion of an asynchronous handler, which continues after it has returned.
struct Future {
  void finish(Error* failure) {
    {
      std::lock_guard lock(mutex);
      done = true;
      error = failure;
    }
    changed.notify_all();
  }
  Error* wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
    return error;
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Error* error = nullptr;
};

struct State {
  std::int64_t type = 0;
  void* object = nullptr;
};

// Handlers' state from one stage to the next: of the call site, and of one run.
struct Context {
  Context* site = nullptr;
  std::array<State, 4> states;

  State& state(Stage stage) {
    Context& owner = stage == Stage::instantiate && site != nullptr ? *site : *this;
    return owner.states.at(static_cast<std::size_t>(stage));
  }
};

namespace {

std::mutex types_mutex;
std::map<std::string, std::int64_t> type_numbers;
std::map<std::int64_t, void (*)(void*)> type_deleters;

Error* failure(std::string message) { return new Error{std::move(message)}; }

Error* error_create(ErrorCreate* args) { return new Error{args->message, args->code}; }

void error_get_details(ErrorGetDetails* args) {
  args->message = args->error->message.c_str();
  if (args->struct_size >= offsetof(ErrorGetDetails, code) + sizeof(int)) args->code = args->error->code;
}

void error_destroy(ErrorDestroy* args) { delete args->error; }

Error* handler_register(void*) { return failure("handlers are registered by sx.register_custom_call"); }
Error* stream_get(StreamGet*) { return failure("there are no streams on a CPU"); }

void note_type(const std::string& name, TypeId& id, const TypeInfo* info) {
  std::lock_guard lock(types_mutex);
  std::int64_t& number = type_numbers[name];
  if (id.type_id != 0) number = id.type_id;
  if (number == 0) number = 1000 + static_cast<std::int64_t>(type_numbers.size());
  id.type_id = number;
  if (info != nullptr) type_deleters[number] = info->deleter;
}

Error* type_register(TypeRegister* args) {
  note_type(std::string(args->name.ptr, args->name.len), *args->type_id, args->type_info);
  return nullptr;
}

Error* context_get(ContextGet*) { return failure("there is no such object in the execution's context"); }

Error* state_set(StateAccess* args) {
  State& state = args->context->state(args->stage);
  if (state.object != nullptr) return failure("the state is set already");
  state = {args->type_id->type_id, args->state};
  return nullptr;
}

Error* state_get(StateAccess* args) {
  const State& state = args->context->state(args->stage);
  if (state.object == nullptr) return failure("the state is not set");
  if (state.type != args->type_id->type_id) return failure("the state is of another type");
  args->state = state.object;
  return nullptr;
}

Error* memory_allocate(MemoryAllocate* args) {
  const std::size_t alignment = args->alignment < sizeof(void*) ? sizeof(void*) : args->alignment;
  if (posix_memalign(&args->data, alignment, args->size == 0 ? 1 : args->size) != 0) return failure("out of memory");
  return nullptr;
}

Error* memory_free(MemoryFree* args) {
  std::free(args->data);
  return nullptr;
}

// Runs the task on the calling thread: a handler must not rely on others.
Error* thread_pool_schedule(ThreadPoolSchedule* args) {
  args->task(args->data);
  return nullptr;
}

Error* thread_pool_num_threads(ThreadPoolNumThreads* args) {
  *args->num_threads = 1;
  return nullptr;
}

Error* future_create(FutureCreate* args) {
  args->future = new Future;
  return nullptr;
}

Error* future_set_available(FutureSetError* args) {
  args->future->finish(nullptr);
  return nullptr;
}

Error* future_set_error(FutureSetError* args) {
  args->future->finish(args->error);
  return nullptr;
}

Error* run_id_get(RunIdGet* args) {
  static std::atomic<std::int64_t> runs{0};
  args->run_id = ++runs;
  return nullptr;
}

Error* device_ordinal_get(DeviceOrdinalGet* args) {
  args->device_ordinal = 0;
  return nullptr;
}

// No extension exists.
Error* find_extension(FindExtension* args) {
  args->extension = nullptr;
  return nullptr;
}

Error* custom_options_get(OptionsGet* args) {
  static const Attributes none;
  args->attributes = &none;
  return nullptr;
}

const Api& api() {
  static const Api table = [] {
    Api made;
    made.error_create = error_create;
    made.error_get_details = error_get_details;
    made.error_destroy = error_destroy;
    made.handler_register = handler_register;
    made.stream_get = stream_get;
    made.type_register = type_register;
    made.context_get = context_get;
    made.state_set = state_set;
    made.state_get = state_get;
    made.memory_allocate = memory_allocate;
    made.memory_free = memory_free;
    made.thread_pool_schedule = thread_pool_schedule;
    made.thread_pool_num_threads = thread_pool_num_threads;
    made.future_create = future_create;
    made.future_set_available = future_set_available;
    made.future_set_error = future_set_error;
    made.run_id_get = run_id_get;
    made.device_ordinal_get = device_ordinal_get;
    made.find_extension = find_extension;
    made.custom_options_get = custom_options_get;
    return made;
  }();
  return table;
}

void destroy_states(Context& context) {
  for (State& state : context.states) {
    if (state.object == nullptr) continue;
    void (*deleter)(void*) = nullptr;
    {
      std::lock_guard lock(types_mutex);
      if (const auto found = type_deleters.find(state.type); found != type_deleters.end()) deleter = found->second;
    }
    if (deleter != nullptr) deleter(state.object);  // it may register a type
    state.object = nullptr;
  }
}

std::string taken(Error* error) {
  if (error == nullptr) return "";
  std::string message = error->message.empty() ? "the handler failed" : error->message;
  delete error;
  return message;
}

}  // namespace
}  // namespace ffi

void register_ffi_type(const std::string& name, std::uintptr_t id, std::uintptr_t info) {
  ffi::note_type(name, *reinterpret_cast<ffi::TypeId*>(id), reinterpret_cast<const ffi::TypeInfo*>(info));
}

FfiAttributes::FfiAttributes(const Json& rows) {
  for (const Json& each : rows.list()) {
    const Json::List& row = each.list();
    const std::string& name = row.at(0).text();
    const auto kind = static_cast<int>(row.at(1).integer()), type = static_cast<int>(row.at(2).integer());
    spans_.push_back({bytes_.emplace_back(name).c_str(), name.size()});
    names_.push_back(&spans_.back());
    types_.push_back(kind);
    if (kind == ffi::kDictionary) {
      nested_.push_back(std::make_unique<FfiAttributes>(row.at(4)));
      values_.push_back(&nested_.back()->view);
      continue;
    }
    std::string& held = bytes_.emplace_back(row.at(4).bytes());
    if (kind == ffi::kString) {
      spans_.push_back({held.data(), held.size()});
      values_.push_back(&spans_.back());
    } else if (kind == ffi::kScalar) {
      values_.push_back(&scalars_.emplace_back(ffi::Scalar{type, held.data()}));
    } else {
      values_.push_back(&arrays_.emplace_back(ffi::Array{type, row.at(3).size(), held.data()}));
    }
  }
  view.size = static_cast<std::int64_t>(types_.size());
  view.types = types_.data();
  view.names = names_.data();
  view.values = values_.data();
}

std::vector<FfiCall::Form> FfiCall::forms(const Json& rows) {
  std::vector<Form> made;
  for (const Json& row : rows.list()) {
    made.push_back({static_cast<int>(row.list().at(0).integer()), {}});
    for (const Json& extent : row.list().at(1).list()) made.back().extents.push_back(extent.integer());
  }
  return made;
}

FfiCall::FfiCall(std::string name, FfiStages stages, const Json& form)
    : name(std::move(name)),
      stages_(stages),
      inputs_(forms(form["inputs"])),
      outputs_(forms(form["outputs"])),
      attributes_(form["attributes"]) {
  auto instance = std::make_unique<ffi::Context>();
  const std::string said = run(ffi::Stage::instantiate, *instance, nullptr, nullptr);
  if (!said.empty()) {
    ffi::destroy_states(*instance);
    throw std::runtime_error(said);
  }
  instance_ = instance.release();
}

FfiCall::~FfiCall() {
  ffi::destroy_states(*instance_);
  delete instance_;
}

std::string FfiCall::run(ffi::Stage stage, ffi::Context& context, void** outputs, void** inputs) const {
  ffi::Handler* handler = stages_[static_cast<std::size_t>(stage)];
  if (handler == nullptr) return "";
  const std::size_t count = inputs_.size() + outputs_.size();
  std::vector<ffi::Buffer> buffers(count);
  std::vector<void*> places(count);
  std::vector<int> types(count, ffi::kBuffer);
  const auto fill = [&](const std::vector<Form>& forms, void** data, std::size_t first) {
    for (std::size_t i = 0; i < forms.size(); ++i) {
      ffi::Buffer& buffer = buffers[first + i];
      buffer.dtype = forms[i].dtype;
      buffer.data = data[i];
      buffer.rank = static_cast<std::int64_t>(forms[i].extents.size());
      buffer.dims = const_cast<std::int64_t*>(forms[i].extents.data());
      places[first + i] = &buffer;
    }
  };
  ffi::CallFrame frame;
  if (stage != ffi::Stage::instantiate) {
    fill(inputs_, inputs, 0);
    fill(outputs_, outputs, inputs_.size());
    frame.arguments.size = static_cast<std::int64_t>(inputs_.size());
    frame.arguments.types = types.data();
    frame.arguments.values = places.data();
    frame.results.size = static_cast<std::int64_t>(outputs_.size());
    frame.results.types = types.data() + inputs_.size();
    frame.results.values = places.data() + inputs_.size();
  }
  frame.struct_size = offsetof(ffi::CallFrame, future);
  frame.api = &ffi::api();
  frame.context = &context;
  frame.stage = stage;
  frame.attributes = attributes_.view;
  std::string said = ffi::taken(handler(&frame));
  if (frame.future != nullptr) {
    const std::string later = ffi::taken(frame.future->wait());
    delete frame.future;
    if (said.empty()) said = later;
  }
  return said;
}

std::string FfiCall::execute(void** outputs, void** inputs) const noexcept {
  ffi::Context context;
  context.site = instance_;
  std::string said;
  try {
    for (const ffi::Stage stage : {ffi::Stage::prepare, ffi::Stage::initialize, ffi::Stage::execute}) {
      said = run(stage, context, outputs, inputs);
      if (!said.empty()) break;
    }
  } catch (const std::exception& error) {
    said = error.what();
  } catch (...) {
    said = "the handler threw what is no exception";
  }
  ffi::destroy_states(context);
  return said;
}

}  // namespace stablexla
