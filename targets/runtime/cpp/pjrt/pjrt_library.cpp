// libstablexla_pjrt.so: the PJRT plugin as a shared library, without Python in the process. It loads and runs programs
// itself; a process of Python's compiles them.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "ffi_call.h"
#include "pjrt_code.h"
#include "pjrt_objects.h"
#include "pjrt_queue.h"
#include "pjrt_saved.h"
#include "pjrt_worker.h"
#include "system.h"
#include "thread_pool.h"

namespace stablexla::pjrt {
namespace {

constexpr int kMost = kMostDevices;  // of threads, too

// A number of the environment; 0 where there is none. What is wrong with it goes to `wrong`.
int number_of(const char* name, std::string& wrong) {
  const char* text = variable(name);
  if (text == nullptr || *text == 0) return 0;
  char* end = nullptr;
  const long found = std::strtol(text, &end, 10);
  if (*end == 0 && found >= 1 && found <= kMost) return static_cast<int>(found);
  wrong = std::string(name) + "=" + text + ": it is a number from 1 to " + std::to_string(kMost);
  return 0;
}

// As XLA's own client is told.
int forced_devices(std::string& wrong) {
  const char* flags = variable("XLA_FLAGS");
  const std::string text = flags != nullptr ? flags : "", name = "--xla_force_host_platform_device_count=";
  const std::size_t place = text.rfind(name);
  if (place == std::string::npos) return 0;
  const long found = std::strtol(text.c_str() + place + name.size(), nullptr, 10);
  if (found >= 1 && found <= kMost) return static_cast<int>(found);
  wrong = "XLA_FLAGS: " + name + " takes a number from 1 to " + std::to_string(kMost);
  return 0;
}

// Asks the compiler about programs, which may call the handlers that are registered here.
PJRT_Error* ask(const char* what, std::vector<std::string_view> parts, std::size_t number, Answer& answer) {
  const std::string names = handler_names();
  parts.push_back(names);
  return ask_worker(what, parts, number, answer);
}

PJRT_Error* compile(PJRT_Client& client, const PJRT_Program& program, const std::string& options,
                    std::shared_ptr<PJRT_Executable>& made) {
  Answer answer;
  const std::vector<std::string_view> parts = {
      {program.code, program.code_size}, {program.format, program.format_size}, options};
  if (PJRT_Error* failure = ask("compiled", parts, client.device_list.size(), answer)) return failure;
  return load_saved(client, std::move(answer.data), options, true, made);
}

PJRT_Error* load(PJRT_Client& client, const std::string& bytes, const std::string& options,
                 std::shared_ptr<PJRT_Executable>& made) {
  const std::string_view file = file_in(bytes);
  auto kept = Storage::of_pool(file.size());
  if (kept == nullptr) return error(kResourceExhausted, std::to_string(file.size()) + " bytes for a saved program");
  std::copy(file.begin(), file.end(), static_cast<char*>(kept->data));
  return load_saved(client, std::move(kept), options, false, made);
}

std::string_view view(const Storage& bytes) { return {static_cast<const char*>(bytes.data), bytes.bytes}; }

PJRT_Error* find_partition(const Storage& bytes, std::string& text) {
  Answer answer;
  if (PJRT_Error* failure = ask("partitioned", {view(bytes)}, 0, answer)) return failure;
  text = view(*answer.data);
  return nullptr;
}

PJRT_Error* find_costs(const Storage& bytes, std::vector<std::pair<std::string, float>>& found) {
  Answer answer;
  if (PJRT_Error* failure = ask("costs", {view(bytes)}, 0, answer)) return failure;
  for (const auto& [name, value] : answer.values["costs"].members())
    found.emplace_back(name, static_cast<float>(value.number()));
  return nullptr;
}

PJRT_Error* add_handler(PJRT_FFI_Register_Handler_Args& args) {
  const std::string name(args.target_name, args.target_name_size);
  const std::string platform(args.platform_name, args.platform_name_size);
  if (platform != "cpu" && platform != "CPU" && platform != "Host" && platform != "host")
    return error(kUnimplemented, "the handler " + name + " is for the platform " + platform + ", and this one is cpu");
  if (args.handler == nullptr || name.empty()) return error(kInvalidArgument, "a handler has a name and an address");
  register_handler(name, reinterpret_cast<ffi::Handler*>(args.handler));
  return nullptr;
}

void add_type(PJRT_FFI_Type_Register_Args& args) {
  const ffi::TypeInfo info{sizeof info, nullptr, args.type_info != nullptr ? args.type_info->deleter : nullptr};
  register_ffi_type({args.type_name, args.type_name_size}, reinterpret_cast<std::uintptr_t>(&args.type_id),
                    reinterpret_cast<std::uintptr_t>(&info));
}

void find_versions(Host& host) {
  Answer answer;
  if (PJRT_Error* failure = ask("versions", {}, 0, answer)) {
    delete failure;  // it comes again when something is compiled
    return;
  }
  for (const Json& each : answer.values["current"].list()) host.current_version.push_back(each.integer());
  for (const Json& each : answer.values["minimum"].list()) host.minimum_version.push_back(each.integer());
}

// A hash of the version, the processor's features and the number of devices (FNV-1a).
PJRT_Error* fingerprint(const PJRT_Client& client, std::uint64_t& found) {
  std::string text = STABLEXLA_VERSION "\n" + std::to_string(client.device_list.size());
  for (const std::string& flag : processor_flags()) text += " " + flag;
  found = 0xcbf29ce484222325;
  for (char c : text) found = (found ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return nullptr;
}

const PJRT_Api* make() {
  keep_library(reinterpret_cast<const void*>(&make));  // its threads wait for work
  Host host;
  host.compile = compile;
  host.load = load;
  host.fingerprint = fingerprint;
  host.find_versions = find_versions;
  host.add_handler = add_handler;
  host.add_type = add_type;
  host.version = "stablexla " STABLEXLA_VERSION;
  const int own = number_of("STABLEXLA_NUM_DEVICES", host.wrong), forced = forced_devices(host.wrong);
  host.num_devices = own != 0 ? own : forced != 0 ? forced : 1;
  if (const int threads = number_of("STABLEXLA_NUM_THREADS", host.wrong)) set_num_threads(threads);
  costs_of_saved = find_costs;
  partition_of_saved = find_partition;
  std::atexit([] { drain(); });  // before the memory that programs use goes
  return make_table(std::move(host));
}

}  // namespace
}  // namespace stablexla::pjrt

extern "C" __attribute__((visibility("default"))) const void* GetPjrtApi() {
  static const auto* table = stablexla::pjrt::make();
  return table;
}
