// libstablexla_pjrt.so: the PJRT plugin as a shared library, without Python in the process. It loads and runs programs
// itself; a process of Python's compiles them.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "pjrt_objects.h"
#include "pjrt_queue.h"
#include "pjrt_saved.h"
#include "pjrt_worker.h"
#include "system.h"
#include "thread_pool.h"

namespace stablexla::pjrt {
namespace {

constexpr int kMost = 1024;  // devices, or threads

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

PJRT_Error* compile(PJRT_Client& client, const PJRT_Program& program, const std::string& options,
                    std::shared_ptr<PJRT_Executable>& made) {
  Answer answer;
  const std::vector<std::string_view> parts = {
      {program.code, program.code_size}, {program.format, program.format_size}, options};
  if (PJRT_Error* failure = ask_worker("compiled", parts, client.device_list.size(), answer)) return failure;
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

PJRT_Error* find_costs(const Storage& bytes, std::vector<std::pair<std::string, float>>& found) {
  Answer answer;
  const std::string_view data(static_cast<const char*>(bytes.data), bytes.bytes);
  if (PJRT_Error* failure = ask_worker("costs", {data}, 0, answer)) return failure;
  for (const auto& [name, value] : answer.values["costs"].members())
    found.emplace_back(name, static_cast<float>(value.number()));
  return nullptr;
}

void find_versions(Host& host) {
  Answer answer;
  if (PJRT_Error* failure = ask_worker("versions", {}, 0, answer)) {
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
  host.version = "stablexla " STABLEXLA_VERSION;
  const int own = number_of("STABLEXLA_NUM_DEVICES", host.wrong), forced = forced_devices(host.wrong);
  host.num_devices = own != 0 ? own : forced != 0 ? forced : 1;
  if (const int threads = number_of("STABLEXLA_NUM_THREADS", host.wrong)) set_num_threads(threads);
  costs_of_saved = find_costs;
  std::atexit([] { drain(); });  // before the memory that programs use goes
  return make_table(std::move(host));
}

}  // namespace
}  // namespace stablexla::pjrt

extern "C" __attribute__((visibility("default"))) const void* GetPjrtApi() {
  static const auto* table = stablexla::pjrt::make();
  return table;
}
