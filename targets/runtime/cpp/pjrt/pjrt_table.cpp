// The table of the PJRT C API: what each function reads from an object of ours; the rest answers UNIMPLEMENTED.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

namespace {

constexpr int kMinor = 104;  // from 105 on PJRT_Memory begins with a table of functions
const char kPlatform[] = "cpu";
Host host;
PJRT_NamedValue plugin_attributes[2];

const char* const kNames[] = {
#define STABLEXLA_PJRT_NAME(name) "PJRT_" #name,
    STABLEXLA_PJRT_FUNCTIONS(STABLEXLA_PJRT_NAME)
#undef STABLEXLA_PJRT_NAME
};
constexpr std::size_t kCount = sizeof kNames / sizeof *kNames;

template <std::size_t I>
PJRT_Error* unimplemented(void*) {
  return error(kUnimplemented, std::string(kNames[I]) + " is not implemented by stablexla");
}

template <std::size_t... I>
void fill(void** slots, std::index_sequence<I...>) {
  ((slots[I] = reinterpret_cast<void*>(&unimplemented<I>)), ...);
}

// A function of the table from one on its arguments.
template <typename A, void (*F)(A&)>
PJRT_Error* slot(A* args) {
  try {
    F(*args);
    return nullptr;
  } catch (const std::exception& failure) {
    return error(kInternal, failure.what());
  }
}

template <typename A, PJRT_Error* (*F)(A&)>
PJRT_Error* slot(A* args) {
  try {
    return F(*args);
  } catch (const std::exception& failure) {
    return error(kInternal, failure.what());
  }
}

void nothing_to_free(void*) {}

void give(const char*& data, std::size_t& size, const std::string& text) {
  data = text.data();
  size = text.size();
}

PJRT_Executable& of(PJRT_Executable* shared) { return *reinterpret_cast<SharedExecutable*>(shared)->program; }

// ---- errors and events

void error_destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }
void error_message(PJRT_Error_Message_Args* args) { give(args->message, args->message_size, args->error->message); }
void error_code(PJRT_Error_GetCode_Args& args) { args.code = args.error->code; }
void no_payload(PJRT_Error_ForEachPayload_Args&) {}
void event_destroy(PJRT_Event_Destroy_Args& args) { delete args.event; }
void event_ready(PJRT_Event_IsReady_Args& args) { args.is_ready = args.event->outcome->is_set(); }
PJRT_Error* event_error(PJRT_Event_Error_Args& args) { return args.event->outcome->failure(); }
PJRT_Error* event_await(PJRT_Event_Await_Args& args) {
  const std::shared_ptr<Outcome> outcome = args.event->outcome;  // the event may be destroyed meanwhile
  outcome->wait();
  return outcome->failure();
}
void event_create(PJRT_Event_Create_Args& args) { args.event = new PJRT_Event{std::make_shared<Outcome>()}; }
PJRT_Error* event_set(PJRT_Event_Set_Args& args) {
  if (args.event->outcome->is_set()) return error(kInvalidArgument, "the event is set already");
  std::unique_ptr<PJRT_Error> failure;
  if (args.error_code != 0)
    failure.reset(error(static_cast<Code>(args.error_code), std::string(args.error_message, args.error_message_size)));
  args.event->outcome->set(std::move(failure));
  return nullptr;
}
void event_on_ready(PJRT_Event_OnReady_Args& args) { args.event->outcome->when_set(args.callback, args.user_arg); }

// ---- the client, its devices and memories

void initialize(PJRT_Plugin_Initialize_Args&) {}

PJRT_NamedValue named(const char* name, const std::vector<std::int64_t>& value) {
  PJRT_NamedValue made{};
  made.struct_size = sizeof made;
  made.name = name;
  made.name_size = std::strlen(name);
  made.type = kIntegers;
  made.int64_array_value = value.data();
  made.value_size = value.size();
  return made;
}

void attributes(PJRT_Plugin_Attributes_Args& args) {
  static std::once_flag once;
  std::call_once(once, [] {
    if (host.current_version.empty()) host.find_versions(host);
  });
  plugin_attributes[0] = named("stablehlo_current_version", host.current_version);
  plugin_attributes[1] = named("stablehlo_minimum_version", host.minimum_version);
  args.attributes = plugin_attributes;
  args.num_attributes = host.current_version.empty() ? 0 : 2;
}

// `num_devices` as an option, which XLA's CPU calls `cpu_device_count`; options of other names are other plugins'.
PJRT_Error* client_create(PJRT_Client_Create_Args& args) {
  int count = host.num_devices;
  bool is_given = false;
  for (std::size_t i = 0; i < args.num_options; ++i) {
    const PJRT_NamedValue& option = args.create_options[i];
    const std::string name(option.name, option.name_size);
    if (name != "num_devices" && name != "cpu_device_count") continue;
    if (option.type != kInteger || option.int64_value < 1 || option.int64_value > kMostDevices)
      return error(kInvalidArgument, "the option " + name + " is a number of devices, from 1 to 1024");
    count = static_cast<int>(option.int64_value);
    is_given = true;
  }
  if (!is_given && !host.wrong.empty()) return error(kInvalidArgument, host.wrong);
  args.client = new PJRT_Client(count, host.process, host.processes);
  return nullptr;
}

void client_destroy(PJRT_Client_Destroy_Args& args) { delete args.client; }
template <typename A>  // of the client and the topology
void platform_name(A& args) {
  args.platform_name = kPlatform;
  args.platform_name_size = sizeof kPlatform - 1;
}
template <typename A>
void platform_version(A& args) {
  give(args.platform_version, args.platform_version_size, host.version);
}
template <typename A>
void no_attributes(A& args) {
  args.attributes = nullptr;
  args.num_attributes = 0;
}
void client_process(PJRT_Client_ProcessIndex_Args& args) { args.process_index = args.client->process; }
void client_devices(PJRT_Client_Devices_Args& args) {
  args.devices = args.client->device_list.data();
  args.num_devices = args.client->device_list.size();
}
void client_addressable(PJRT_Client_AddressableDevices_Args& args) {
  args.addressable_devices = args.client->local_list.data();
  args.num_addressable_devices = args.client->local_list.size();
}
PJRT_Error* find_device(const std::vector<PJRT_Device*>& devices, int id, PJRT_Device*& found) {
  if (id < 0 || static_cast<std::size_t>(id) >= devices.size())
    return error(kInvalidArgument, "there is no device " + std::to_string(id));
  found = devices[static_cast<std::size_t>(id)];
  return nullptr;
}
PJRT_Error* client_lookup(PJRT_Client_LookupDevice_Args& args) {
  return find_device(args.client->device_list, args.id, args.device);
}
PJRT_Error* client_lookup_here(PJRT_Client_LookupAddressableDevice_Args& args) {
  return find_device(args.client->local_list, args.local_hardware_id, args.addressable_device);
}
void client_memories(PJRT_Client_AddressableMemories_Args& args) {
  args.addressable_memories = args.client->memory_list.data();
  args.num_addressable_memories = args.client->memory_list.size();
}
void client_topology(PJRT_Client_TopologyDescription_Args& args) { args.topology = &args.client->topology; }
PJRT_Error* client_assignment(PJRT_Client_DefaultDeviceAssignment_Args& args) {
  const auto count = static_cast<std::size_t>(args.num_replicas) * static_cast<std::size_t>(args.num_partitions);
  if (count > args.default_assignment_size || count > args.client->device_list.size())
    return error(kInvalidArgument, std::to_string(count) + " devices are asked for, where there are " +
                                       std::to_string(args.client->device_list.size()));
  for (std::size_t i = 0; i < count; ++i) args.default_assignment[i] = static_cast<int>(i);
  return nullptr;
}
PJRT_Error* client_compile(PJRT_Client_Compile_Args& args) {
  auto made = std::make_unique<PJRT_LoadedExecutable>();
  const std::string options(args.compile_options, args.compile_options_size);
  if (PJRT_Error* failure = host.compile(*args.client, *args.program, options, made->program)) return failure;
  args.executable = made.release();
  return nullptr;
}

PJRT_Error* client_load(PJRT_Client_Load_Args& args) {
  std::string bytes;
  if (PJRT_Error* failure = of(args.executable).save(bytes)) return failure;
  const std::string options(args.compile_options == nullptr ? "" : args.compile_options, args.compile_options_size);
  auto made = std::make_unique<PJRT_LoadedExecutable>();
  if (PJRT_Error* failure = host.load(*args.client, bytes, options, made->program)) return failure;
  args.loaded_executable = made.release();
  return nullptr;
}

void client_processes(PJRT_Client_UpdateGlobalProcessInfo_Args&) {}  // the transport over MPI notices who is gone

// A topology's name says how many devices it has: cpu:8.
PJRT_Error* named_topology(const std::string& name, PJRT_TopologyDescription*& made) {
  const std::string prefix = std::string(kPlatform) + ":";
  char* end = nullptr;
  const long count = name.rfind(prefix, 0) == 0 ? std::strtol(name.c_str() + prefix.size(), &end, 10) : 0;
  if (count < 1 || count > kMostDevices || *end != 0)
    return error(kUnimplemented, "a topology called '" + name + "': those of this platform are cpu:1 to cpu:1024");
  made = &(new PJRT_Client(static_cast<int>(count), 0, 1))->topology;
  made->is_owner = true;
  return nullptr;
}
PJRT_Error* topology_create(PJRT_TopologyDescription_Create_Args& args) {
  std::string name(args.topology_name, args.topology_name_size);
  if (name.empty()) name = std::string(kPlatform) + ":" + std::to_string(host.num_devices * host.processes);
  return named_topology(name, args.topology);
}
void topology_save(PJRT_TopologyDescription_Serialize_Args& args) {
  give(args.serialized_bytes, args.serialized_bytes_size, args.topology->name);
  args.serialized_topology = nullptr;
  args.serialized_topology_deleter = reinterpret_cast<void*>(&nothing_to_free);
}
PJRT_Error* topology_load(PJRT_TopologyDescription_Deserialize_Args& args) {
  return named_topology({args.serialized_topology, args.serialized_topology_size}, args.topology);
}
void topology_destroy(PJRT_TopologyDescription_Destroy_Args& args) {
  if (args.topology->is_owner) delete args.topology->client;
}
PJRT_Error* compile_for(PJRT_Compile_Args& args) {
  auto made = std::make_unique<SharedExecutable>();
  const std::string options(args.compile_options, args.compile_options_size);
  if (PJRT_Error* failure = host.compile(*args.topology->client, *args.program, options, made->program)) return failure;
  args.executable = reinterpret_cast<PJRT_Executable*>(made.release());
  return nullptr;
}
void topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args) {
  args.descriptions = args.topology->descriptions.data();
  args.num_descriptions = args.topology->descriptions.size();
}
PJRT_Error* topology_fingerprint(PJRT_TopologyDescription_Fingerprint_Args& args) {
  return host.fingerprint(*args.topology->client, args.fingerprint);
}

void description_id(PJRT_DeviceDescription_Id_Args& args) { args.id = args.device_description->id; }
void description_process(PJRT_DeviceDescription_ProcessIndex_Args& args) {
  args.process_index = args.device_description->process;
}
void description_kind(PJRT_DeviceDescription_Kind_Args& args) {
  args.device_kind = kPlatform;
  args.device_kind_size = sizeof kPlatform - 1;
}
void description_debug(PJRT_DeviceDescription_DebugString_Args& args) {
  give(args.debug_string, args.debug_string_size, args.device_description->text);
}
void description_text(PJRT_DeviceDescription_ToString_Args& args) {
  give(args.to_string, args.to_string_size, args.device_description->text);
}
void device_description(PJRT_Device_GetDescription_Args& args) { args.device_description = &args.device->description; }
void device_addressable(PJRT_Device_IsAddressable_Args& args) {
  args.is_addressable = args.device->description.process == args.device->client->process;
}
void device_hardware(PJRT_Device_LocalHardwareId_Args& args) { args.local_hardware_id = args.device->local_id; }
void device_memories(PJRT_Device_AddressableMemories_Args& args) {
  args.memories = args.device->memories.data();
  args.num_memories = args.device->memories.size();
}
PJRT_Error* device_memory(PJRT_Device_DefaultMemory_Args& args) {
  if (args.device->memories.empty())
    return error(kInvalidArgument, args.device->description.text + " belongs to another process");
  args.memory = args.device->memories.front();
  return nullptr;
}
void device_stats(PJRT_Device_MemoryStats_Args& args) {
  const PoolStats now = pool_stats();
  args.bytes_in_use = static_cast<std::int64_t>(now.in_use_bytes);
  args.peak_bytes_in_use = static_cast<std::int64_t>(now.peak_bytes);
  args.num_allocs = static_cast<std::int64_t>(now.in_use_blocks);
  args.pool_bytes = static_cast<std::int64_t>(now.in_use_bytes + now.cached_bytes);
  args.peak_bytes_in_use_is_set = args.num_allocs_is_set = args.pool_bytes_is_set = true;
  args.largest_alloc_size_is_set = args.bytes_limit_is_set = args.bytes_reserved_is_set = false;
  args.peak_bytes_reserved_is_set = args.bytes_reservable_limit_is_set = false;
  args.largest_free_block_bytes_is_set = args.peak_pool_bytes_is_set = false;
}
void forget_stats(PJRT_Device_ClearMemoryStats_Args&) { forget_peak(); }
void nothing_to_delete(PJRT_Device_Attributes*) {}
void device_attributes(PJRT_Device_GetAttributes_Args& args) {
  no_attributes(args);
  args.device_attributes = nullptr;
  args.attributes_deleter = nothing_to_delete;
}
void memory_id(PJRT_Memory_Id_Args& args) { args.id = args.memory->id; }
void memory_kind(PJRT_Memory_Kind_Args& args) { give(args.kind, args.kind_size, args.memory->kind); }
void memory_kind_id(PJRT_Memory_Kind_Id_Args& args) { args.kind_id = args.memory->kind_id; }
void memory_debug(PJRT_Memory_DebugString_Args& args) {
  give(args.debug_string, args.debug_string_size, args.memory->text);
}
void memory_text(PJRT_Memory_ToString_Args& args) { give(args.to_string, args.to_string_size, args.memory->text); }
void memory_devices(PJRT_Memory_AddressableByDevices_Args& args) {
  args.devices = &args.memory->device;
  args.num_devices = 1;
}

// ---- programs

void executable_destroy(PJRT_Executable_Destroy_Args& args) { delete reinterpret_cast<SharedExecutable*>(args.executable); }
void executable_name(PJRT_Executable_Name_Args& args) {
  give(args.executable_name, args.executable_name_size, of(args.executable).name);
}
void executable_replicas(PJRT_Executable_NumReplicas_Args& args) {
  args.num_replicas = static_cast<std::size_t>(of(args.executable).num_replicas);
}
void executable_partitions(PJRT_Executable_NumPartitions_Args& args) {
  args.num_partitions = static_cast<std::size_t>(of(args.executable).num_partitions);
}
void executable_outputs(PJRT_Executable_NumOutputs_Args& args) { args.num_outputs = of(args.executable).outputs.size(); }
void executable_code(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args) {
  args.size_in_bytes = of(args.executable).code_bytes;
}
PJRT_Error* executable_costs(PJRT_Executable_GetCostAnalysis_Args& args) {
  PJRT_Executable& program = of(args.executable);
  std::vector<std::pair<std::string, float>> counted;
  if (!program.has_costs.load())  // without the lock, since it takes the GIL
    if (PJRT_Error* failure = program.count_costs(counted)) return failure;
  std::lock_guard<std::mutex> lock(program.asking);
  if (!program.has_costs.exchange(true)) {
    program.costs = std::move(counted);
    for (const auto& [name, number] : program.costs) {
      PJRT_NamedValue made{};
      made.struct_size = sizeof made;
      give(made.name, made.name_size, name);
      made.type = kFloat;
      made.float_value = number;
      made.value_size = 1;
      program.named_costs.push_back(made);
    }
  }
  args.num_properties = program.named_costs.size();
  args.properties = program.named_costs.data();
  return nullptr;
}
void delete_saved(PJRT_SerializedExecutable* saved) { delete saved; }
PJRT_Error* executable_save(PJRT_Executable_Serialize_Args& args) {
  auto saved = std::make_unique<PJRT_SerializedExecutable>();
  if (PJRT_Error* failure = of(args.executable).save(saved->bytes)) return failure;
  give(args.serialized_bytes, args.serialized_bytes_size, saved->bytes);
  args.serialized_executable = saved.release();
  args.serialized_executable_deleter = delete_saved;
  return nullptr;
}
PJRT_Error* executable_load(PJRT_Executable_DeserializeAndLoad_Args& args) {
  const std::string bytes(args.serialized_executable, args.serialized_executable_size);
  const auto place = reinterpret_cast<char*>(&args.overridden_serialized_compile_options) - reinterpret_cast<char*>(&args);
  const bool has_options = args.struct_size > static_cast<std::size_t>(place) &&
                           args.overridden_serialized_compile_options != nullptr;
  const std::string options = has_options ? std::string(args.overridden_serialized_compile_options,
                                                        args.overridden_serialized_compile_options_size)
                                          : std::string();
  auto made = std::make_unique<PJRT_LoadedExecutable>();
  if (PJRT_Error* failure = host.load(*args.client, bytes, options, made->program)) return failure;
  args.loaded_executable = made.release();
  return nullptr;
}
void executable_kinds(PJRT_Executable_OutputMemoryKinds_Args& args) {
  const PJRT_Executable& program = of(args.executable);
  args.num_outputs = program.outputs.size();
  args.memory_kinds = program.kinds.data.data();
  args.memory_kind_sizes = program.kinds.sizes.data();
}
PJRT_Error* executable_program(PJRT_Executable_OptimizedProgram_Args& args) {
  static const char format[] = "mlir";
  PJRT_Executable& executable = of(args.executable);
  const auto has_text = [&executable] {
    std::lock_guard<std::mutex> lock(executable.asking);
    return !executable.text.empty();
  };
  if (!has_text()) {
    std::string made;
    if (PJRT_Error* failure = executable.partition(made)) return failure;
    std::lock_guard<std::mutex> lock(executable.asking);
    if (executable.text.empty()) executable.text = std::move(made);
  }
  const std::string& text = executable.text;
  PJRT_Program& program = *args.program;
  program.format = format;
  program.format_size = sizeof format - 1;
  if (program.code == nullptr) {
    program.code_size = text.size();
    return nullptr;
  }
  if (program.code_size < text.size()) return error(kInvalidArgument, "less memory than the program's text has bytes");
  std::memcpy(program.code, text.data(), text.size());
  return nullptr;
}
void executable_types(PJRT_Executable_OutputElementTypes_Args& args) {
  args.output_types = of(args.executable).output_types.data();
  args.num_output_types = of(args.executable).output_types.size();
}
void executable_dimensions(PJRT_Executable_OutputDimensions_Args& args) {
  const PJRT_Executable& program = of(args.executable);
  args.num_outputs = program.outputs.size();
  args.dims = program.output_dims.data();
  args.dim_sizes = program.output_ranks.data();
}
void executable_fingerprint(PJRT_Executable_Fingerprint_Args& args) {
  give(args.executable_fingerprint, args.executable_fingerprint_size, of(args.executable).fingerprint);
}
void executable_memory(PJRT_Executable_GetCompiledMemoryStats_Args& args) {
  const PJRT_Executable& program = of(args.executable);
  auto* first = reinterpret_cast<char*>(&args.generated_code_size_in_bytes);
  std::memset(first, 0, args.struct_size - static_cast<std::size_t>(first - reinterpret_cast<char*>(&args)));
  args.generated_code_size_in_bytes = program.code_bytes;
  args.argument_size_in_bytes = program.argument_bytes;
  args.output_size_in_bytes = program.output_bytes;
  args.alias_size_in_bytes = program.alias_bytes;
  args.temp_size_in_bytes = program.arena_bytes;
  const auto place = reinterpret_cast<char*>(&args.peak_memory_in_bytes) - reinterpret_cast<char*>(&args);
  if (args.struct_size > static_cast<std::size_t>(place))
    args.peak_memory_in_bytes = program.argument_bytes + program.output_bytes + program.arena_bytes - program.alias_bytes;
}
template <typename A>
void give(const Texts& texts, std::size_t& count, A& args) {
  count = texts.data.size();
  args.shardings = count != 0 ? texts.data.data() : nullptr;
  args.sharding_sizes = count != 0 ? texts.sizes.data() : nullptr;
}
void parameter_shardings(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args& args) {
  give(of(args.executable).parameter_shardings, args.num_parameters, args);
}
void output_shardings(PJRT_Shardings_PJRT_Executable_OutputShardings_Args& args) {
  give(of(args.executable).output_shardings, args.num_outputs, args);
}

void context_create(PJRT_ExecuteContext_Create_Args& args) { args.context = new PJRT_ExecuteContext; }
void context_destroy(PJRT_ExecuteContext_Destroy_Args& args) { delete args.context; }

// ---- handlers of custom calls

void ffi_type(PJRT_FFI_Type_Register_Args& args) { host.add_type(args); }
PJRT_Error* ffi_handler(PJRT_FFI_Register_Handler_Args& args) { return host.add_handler(args); }
PJRT_Error* ffi_user_data(Args&) { return error(kUnimplemented, "handlers get no data of a run's context"); }

// ---- layouts

PJRT_Error* buffer_memory_layout(PJRT_Buffer_GetMemoryLayout_Args& args) {
  static const Order rows = full({}, 64);  // its end is the order of rows of any rank
  const Order& order = args.buffer->order;
  const std::size_t rank = args.buffer->dims.size();
  if (rank > rows.size()) return error(kUnimplemented, "the layout of an array of more than 64 dimensions");
  args.layout.type = 0;
  args.layout.tiled = {};
  args.layout.tiled.minor_to_major = order.empty() ? rows.data() + (rows.size() - rank) : order.data();
  args.layout.tiled.minor_to_major_size = rank;
  return nullptr;
}
void layout_destroy(PJRT_Layouts_MemoryLayout_Destroy_Args& args) { delete args.layout; }
void nothing_to_delete(PJRT_Layouts_SerializedLayout*) {}
void layout_serialize(PJRT_Layouts_MemoryLayout_Serialize_Args& args) {
  give(args.serialized_bytes, args.serialized_bytes_size, args.layout->text);
  args.serialized_layout = nullptr;  // the layout has the bytes
  args.serialized_layout_deleter = nothing_to_delete;
}
template <typename A>  // of the client and the topology
void default_layout(A& args) {
  args.layout = new PJRT_Layouts_MemoryLayout({}, args.num_dims);
}
void buffer_layout(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args& args) {
  args.layout = new PJRT_Layouts_MemoryLayout(args.buffer->order, args.buffer->dims.size());
}
void output_layouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args& args) {
  args.num_outputs = of(args.executable).output_layout_list.size();
  args.layouts = of(args.executable).output_layout_list.data();
}
void parameter_layouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args& args) {
  args.num_parameters = of(args.executable).argument_layout_list.size();
  args.layouts = of(args.executable).argument_layout_list.data();
}

void loaded_destroy(PJRT_LoadedExecutable_Destroy_Args& args) { delete args.executable; }
void loaded_executable(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  args.executable = reinterpret_cast<PJRT_Executable*>(new SharedExecutable{args.loaded_executable->program});
}
void loaded_devices(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  args.addressable_devices = args.executable->program->devices.data();
  args.num_addressable_devices = args.executable->program->devices.size();
}
PJRT_Error* loaded_execute(PJRT_LoadedExecutable_Execute_Args& args) { return execute(args, !host.is_asynchronous); }
void transfer_metadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args&) {}  // for tracers
void loaded_delete(PJRT_LoadedExecutable_Delete_Args& args) { args.executable->is_deleted.store(true); }
void loaded_is_deleted(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  args.is_deleted = args.executable->is_deleted.load();
}
void loaded_fingerprint(PJRT_LoadedExecutable_Fingerprint_Args& args) {
  give(args.executable_fingerprint, args.executable_fingerprint_size, args.executable->program->fingerprint);
}
void loaded_assignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args) {
  give(args.serialized_bytes, args.serialized_bytes_size, args.executable->program->assignment);
  args.serialized_device_assignment = nullptr;
  args.serialized_device_assignment_deleter = reinterpret_cast<void*>(&nothing_to_free);
}
void loaded_logical_ids(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args& args) {
  args.addressable_device_logical_ids = args.executable->program->logical_ids.data();
  args.num_addressable_device_logical_ids = args.executable->program->logical_ids.size();
}

// ---- arrays

PJRT_Error* deleted() { return error(kInvalidArgument, "the array has been deleted or donated"); }
void buffer_destroy(PJRT_Buffer_Destroy_Args& args) { delete args.buffer; }
void buffer_type(PJRT_Buffer_ElementType_Args& args) { args.type = args.buffer->type; }
void buffer_dims(PJRT_Buffer_Dimensions_Args& args) {
  args.dims = args.buffer->dims.data();
  args.num_dims = args.buffer->dims.size();
}
void buffer_unpadded(PJRT_Buffer_UnpaddedDimensions_Args& args) {
  args.unpadded_dims = args.buffer->dims.data();
  args.num_dims = args.buffer->dims.size();
}
void buffer_dynamic(PJRT_Buffer_DynamicDimensionIndices_Args& args) {
  args.dynamic_dim_indices = nullptr;
  args.num_dynamic_dims = 0;
}
void buffer_device(PJRT_Buffer_Device_Args& args) { args.device = args.buffer->memory->device; }
void buffer_memory(PJRT_Buffer_Memory_Args& args) { args.memory = args.buffer->memory; }
void buffer_delete(PJRT_Buffer_Delete_Args& args) { args.buffer->take(); }
void buffer_is_deleted(PJRT_Buffer_IsDeleted_Args& args) { args.is_deleted = args.buffer->storage() == nullptr; }
void buffer_on_cpu(PJRT_Buffer_IsOnCpu_Args& args) { args.is_on_cpu = true; }
PJRT_Error* buffer_size(PJRT_Buffer_OnDeviceSizeInBytes_Args& args) {
  const auto storage = args.buffer->storage();
  if (storage == nullptr) return deleted();
  args.on_device_size_in_bytes = storage->bytes;
  return nullptr;
}
PJRT_Error* buffer_ready(PJRT_Buffer_ReadyEvent_Args& args) {
  if (args.buffer->storage() == nullptr) return deleted();
  args.event = args.buffer->made == nullptr ? done_event() : new PJRT_Event{args.buffer->made};
  return nullptr;
}
PJRT_Error* buffer_address(PJRT_Buffer_UnsafePointer_Args& args) {
  const auto storage = args.buffer->storage();
  if (storage == nullptr) return deleted();
  if (PJRT_Error* failure = args.buffer->wait()) return failure;
  args.buffer_pointer = reinterpret_cast<std::uintptr_t>(storage->data);
  return nullptr;
}
PJRT_Error* buffer_data(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& args) {
  const auto storage = args.buffer->storage();
  if (storage == nullptr) return deleted();
  if (PJRT_Error* failure = args.buffer->wait()) return failure;
  args.device_memory_ptr = storage->data;
  return nullptr;
}
PJRT_Error* buffer_hold(PJRT_Buffer_IncreaseExternalReferenceCount_Args& args) {
  if (args.buffer->storage() == nullptr) return deleted();
  if (PJRT_Error* failure = args.buffer->wait()) return failure;
  return args.buffer->hold() ? nullptr : deleted();
}
PJRT_Error* buffer_release(PJRT_Buffer_DecreaseExternalReferenceCount_Args& args) {
  if (args.buffer->release()) return nullptr;
  return error(kInvalidArgument, "nobody refers to the array's memory");
}
PJRT_Error* buffer_to_device(PJRT_Buffer_CopyToDevice_Args& args) {
  if (args.dst_device->memories.empty())
    return error(kUnimplemented, args.dst_device->description.text + " belongs to another process");
  return copy_to(*args.buffer, args.dst_device->memories.front(), &args.dst_buffer);
}
PJRT_Error* buffer_to_memory(PJRT_Buffer_CopyToMemory_Args& args) {
  return copy_to(*args.buffer, args.dst_memory, &args.dst_buffer);
}

}  // namespace

std::size_t kind_of(const std::string& name) {
  const auto* found = std::find(std::begin(kMemoryKinds), std::end(kMemoryKinds), name);
  if (found == std::end(kMemoryKinds)) throw std::invalid_argument("there is no memory of the kind " + name);
  return static_cast<std::size_t>(found - kMemoryKinds);
}

PJRT_Client::PJRT_Client(int count, int process, int processes) : process(process) {
  int next = 0;
  for (int id = 0; id < count * processes; ++id) {
    auto device = std::make_unique<PJRT_Device>();
    const bool is_here = id / count == process;
    device->client = this;
    device->local_id = id % count;
    device->description = {id, id / count, "stablexla:" + std::to_string(id)};
    for (int kind = 0; is_here && kind < static_cast<int>(std::size(kMemoryKinds)); ++kind) {
      const char* name = kMemoryKinds[kind];
      const std::string text = std::string(name) + " of stablexla:" + std::to_string(id);
      memories.push_back(std::unique_ptr<PJRT_Memory>(new PJRT_Memory{next++, kind, name, text, device.get()}));
      device->memories.push_back(memories.back().get());
      memory_list.push_back(memories.back().get());
    }
    topology.descriptions.push_back(&device->description);
    device_list.push_back(device.get());
    if (is_here) local_list.push_back(device.get());
    devices.push_back(std::move(device));
  }
  topology.client = this;
  topology.name = std::string(kPlatform) + ":" + std::to_string(count * processes);
}

void PJRT_Executable::lay_out() {
  std::vector<std::string> names;
  for (const Output& output : outputs) {
    output_types.push_back(output.type);
    output_dims.insert(output_dims.end(), output.dims.begin(), output.dims.end());
    output_ranks.push_back(output.dims.size());
    names.push_back(kMemoryKinds[output.kind]);
    output_layouts.emplace_back(output.order, output.dims.size());
  }
  for (auto& each : output_layouts) output_layout_list.push_back(&each);
  for (auto& each : argument_layouts) argument_layout_list.push_back(&each);
  kinds = Texts(std::move(names));
}

const PJRT_Api* make_table(Host given) {
  static PJRT_Api table{};
  static PJRT_Shardings_Extension shardings{};
  host = std::move(given);
  table.struct_size = sizeof table;
  table.pjrt_api_version.struct_size = sizeof table.pjrt_api_version;
  table.pjrt_api_version.major_version = 0;
  table.pjrt_api_version.minor_version = kMinor;
  fill(&table.Error_Destroy, std::make_index_sequence<kCount>());
#define SLOT(name, function) table.name = reinterpret_cast<void*>(&slot<PJRT_##name##_Args, function>);
  table.Error_Destroy = reinterpret_cast<void*>(&error_destroy);
  table.Error_Message = reinterpret_cast<void*>(&error_message);
  SLOT(Error_GetCode, error_code)
  SLOT(Error_ForEachPayload, no_payload)
  SLOT(Plugin_Initialize, initialize)
  SLOT(Plugin_Attributes, attributes)
  SLOT(Event_Destroy, event_destroy)
  SLOT(Event_IsReady, event_ready)
  SLOT(Event_Error, event_error)
  SLOT(Event_Await, event_await)
  SLOT(Event_OnReady, event_on_ready)
  SLOT(Event_Create, event_create)
  SLOT(Event_Set, event_set)
  SLOT(Client_Create, client_create)
  SLOT(Client_Destroy, client_destroy)
  SLOT(Client_PlatformName, platform_name)
  SLOT(Client_ProcessIndex, client_process)
  SLOT(Client_PlatformVersion, platform_version)
  SLOT(Client_Devices, client_devices)
  SLOT(Client_AddressableDevices, client_addressable)
  SLOT(Client_LookupDevice, client_lookup)
  SLOT(Client_LookupAddressableDevice, client_lookup_here)
  SLOT(Client_AddressableMemories, client_memories)
  SLOT(Client_Compile, client_compile)
  SLOT(Client_DefaultDeviceAssignment, client_assignment)
  SLOT(Client_BufferFromHostBuffer, buffer_of_host)
  SLOT(Client_CreateViewOfDeviceBuffer, buffer_of_view)
  SLOT(Client_CreateUninitializedBuffer, buffer_of_nothing)
  SLOT(Client_CreateErrorBuffer, buffer_of_error)
  SLOT(Client_CreateBuffersForAsyncHostToDevice, transfer_create)
  SLOT(AsyncHostToDeviceTransferManager_Destroy, transfer_destroy)
  SLOT(AsyncHostToDeviceTransferManager_TransferData, transfer_data)
  SLOT(AsyncHostToDeviceTransferManager_TransferLiteral, transfer_literal)
  SLOT(AsyncHostToDeviceTransferManager_RetrieveBuffer, transfer_retrieve)
  SLOT(AsyncHostToDeviceTransferManager_Device, transfer_device)
  SLOT(AsyncHostToDeviceTransferManager_BufferCount, transfer_count)
  SLOT(AsyncHostToDeviceTransferManager_BufferSize, transfer_size)
  SLOT(AsyncHostToDeviceTransferManager_SetBufferError, transfer_fail)
  SLOT(AsyncHostToDeviceTransferManager_AddMetadata, transfer_metadata)
  SLOT(Client_Load, client_load)
  SLOT(Client_UpdateGlobalProcessInfo, client_processes)
  SLOT(Client_TopologyDescription, client_topology)
  SLOT(Compile, compile_for)
  SLOT(TopologyDescription_Create, topology_create)
  SLOT(TopologyDescription_Serialize, topology_save)
  SLOT(TopologyDescription_Deserialize, topology_load)
  SLOT(TopologyDescription_Destroy, topology_destroy)
  SLOT(TopologyDescription_PlatformName, platform_name)
  SLOT(TopologyDescription_PlatformVersion, platform_version)
  SLOT(TopologyDescription_GetDeviceDescriptions, topology_devices)
  SLOT(TopologyDescription_Attributes, no_attributes)
  SLOT(TopologyDescription_Fingerprint, topology_fingerprint)
  SLOT(DeviceDescription_Id, description_id)
  SLOT(DeviceDescription_ProcessIndex, description_process)
  SLOT(DeviceDescription_Attributes, no_attributes)
  SLOT(DeviceDescription_Kind, description_kind)
  SLOT(DeviceDescription_DebugString, description_debug)
  SLOT(DeviceDescription_ToString, description_text)
  SLOT(Device_GetDescription, device_description)
  SLOT(Device_IsAddressable, device_addressable)
  SLOT(Device_LocalHardwareId, device_hardware)
  SLOT(Device_AddressableMemories, device_memories)
  SLOT(Device_DefaultMemory, device_memory)
  SLOT(Device_MemoryStats, device_stats)
  SLOT(Device_ClearMemoryStats, forget_stats)
  SLOT(Device_GetAttributes, device_attributes)
  SLOT(ExecuteContext_Create, context_create)
  SLOT(ExecuteContext_Destroy, context_destroy)
  SLOT(Memory_Id, memory_id)
  SLOT(Memory_Kind, memory_kind)
  SLOT(Memory_Kind_Id, memory_kind_id)
  SLOT(Memory_DebugString, memory_debug)
  SLOT(Memory_ToString, memory_text)
  SLOT(Memory_AddressableByDevices, memory_devices)
  SLOT(Executable_Destroy, executable_destroy)
  SLOT(Executable_Name, executable_name)
  SLOT(Executable_NumReplicas, executable_replicas)
  SLOT(Executable_NumPartitions, executable_partitions)
  SLOT(Executable_NumOutputs, executable_outputs)
  SLOT(Executable_SizeOfGeneratedCodeInBytes, executable_code)
  SLOT(Executable_GetCostAnalysis, executable_costs)
  SLOT(Executable_Serialize, executable_save)
  SLOT(Executable_DeserializeAndLoad, executable_load)
  SLOT(Executable_OutputMemoryKinds, executable_kinds)
  SLOT(Executable_OptimizedProgram, executable_program)
  SLOT(Executable_OutputElementTypes, executable_types)
  SLOT(Executable_OutputDimensions, executable_dimensions)
  SLOT(Executable_Fingerprint, executable_fingerprint)
  SLOT(Executable_GetCompiledMemoryStats, executable_memory)
  SLOT(LoadedExecutable_Destroy, loaded_destroy)
  SLOT(LoadedExecutable_GetExecutable, loaded_executable)
  SLOT(LoadedExecutable_AddressableDevices, loaded_devices)
  SLOT(LoadedExecutable_Delete, loaded_delete)
  SLOT(LoadedExecutable_IsDeleted, loaded_is_deleted)
  SLOT(LoadedExecutable_Execute, loaded_execute)
  SLOT(LoadedExecutable_Fingerprint, loaded_fingerprint)
  SLOT(LoadedExecutable_GetDeviceAssignment, loaded_assignment)
  SLOT(LoadedExecutable_AddressableDeviceLogicalIds, loaded_logical_ids)
  SLOT(Buffer_Destroy, buffer_destroy)
  SLOT(Buffer_ElementType, buffer_type)
  SLOT(Buffer_Dimensions, buffer_dims)
  SLOT(Buffer_UnpaddedDimensions, buffer_unpadded)
  SLOT(Buffer_DynamicDimensionIndices, buffer_dynamic)
  SLOT(Buffer_GetMemoryLayout, buffer_memory_layout)
  SLOT(Buffer_OnDeviceSizeInBytes, buffer_size)
  SLOT(Buffer_Device, buffer_device)
  SLOT(Buffer_Memory, buffer_memory)
  SLOT(Buffer_Delete, buffer_delete)
  SLOT(Buffer_IsDeleted, buffer_is_deleted)
  SLOT(Buffer_CopyToDevice, buffer_to_device)
  SLOT(Buffer_CopyToMemory, buffer_to_memory)
  SLOT(Buffer_ToHostBuffer, copy_to_host)
  SLOT(Buffer_CopyRawToHost, copy_part_to_host)
  SLOT(Buffer_IsOnCpu, buffer_on_cpu)
  SLOT(Buffer_ReadyEvent, buffer_ready)
  SLOT(Buffer_UnsafePointer, buffer_address)
  SLOT(Buffer_IncreaseExternalReferenceCount, buffer_hold)
  SLOT(Buffer_DecreaseExternalReferenceCount, buffer_release)
  SLOT(Buffer_OpaqueDeviceMemoryDataPointer, buffer_data)
#undef SLOT
  shardings.base = {sizeof shardings, kShardings, profiler_extension()};
  shardings.PJRT_Shardings_PJRT_Executable_ParameterShardings =
      reinterpret_cast<void*>(&slot<PJRT_Shardings_PJRT_Executable_ParameterShardings_Args, parameter_shardings>);
  shardings.PJRT_Shardings_PJRT_Executable_OutputShardings =
      reinterpret_cast<void*>(&slot<PJRT_Shardings_PJRT_Executable_OutputShardings_Args, output_shardings>);
  static PJRT_Layouts_Extension layouts{};
  layouts.base = {sizeof layouts, kLayouts, &shardings.base};
#define SLOT(name, function) layouts.PJRT_Layouts_##name = reinterpret_cast<void*>(&slot<PJRT_Layouts_##name##_Args, function>);
  SLOT(MemoryLayout_Destroy, layout_destroy)
  SLOT(MemoryLayout_Serialize, layout_serialize)
  SLOT(PJRT_Client_GetDefaultLayout, default_layout)
  SLOT(PJRT_Buffer_MemoryLayout, buffer_layout)
  SLOT(PJRT_Topology_GetDefaultLayout, default_layout)
  SLOT(PJRT_Executable_GetOutputLayouts, output_layouts)
  SLOT(PJRT_Executable_GetParameterLayouts, parameter_layouts)
#undef SLOT
  table.extension_start = &layouts;
  if (host.add_handler == nullptr) return &table;
  static PJRT_FFI_Extension ffi{};
  ffi.base = {sizeof ffi, kFfi, &layouts.base};
  ffi.type_register = reinterpret_cast<void*>(&slot<PJRT_FFI_Type_Register_Args, ffi_type>);
  ffi.user_data_add = reinterpret_cast<void*>(&slot<Args, ffi_user_data>);
  ffi.register_handler = reinterpret_cast<void*>(&slot<PJRT_FFI_Register_Handler_Args, ffi_handler>);
  table.extension_start = &ffi;
  return &table;
}

}  // namespace stablexla::pjrt
