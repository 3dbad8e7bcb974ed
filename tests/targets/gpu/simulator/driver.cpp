// The driver's state: settings, injected failures, reports; and functions about devices, contexts and errors.
#include "driver.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace simulator {

Driver& driver() {
  static Driver& all = *new Driver;
  return all;
}

std::vector<Device*>& current() {
  thread_local std::vector<Device*> all;
  return all;
}

Device* device_now() { return current().empty() ? nullptr : current().back(); }

void Driver::read_environment() {
  auto number = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
  };
  settings.chip = int(number("SIMULATOR_CHIP", 90));
  settings.driver = int(number("SIMULATOR_DRIVER", 12080));
  settings.devices = int(number("SIMULATOR_DEVICES", 2));
  settings.memory = number("SIMULATOR_MEMORY", std::uint64_t(80) << 30);
  settings.lazy = number("SIMULATOR_LAZY", 0);
  settings.pools = number("SIMULATOR_POOLS", 1);
  settings.seed = unsigned(number("SIMULATOR_SEED", 1));
  settings.turns = number("SIMULATOR_TURNS", 64);
  const char* text = std::getenv("SIMULATOR_CHECKS");
  std::string all = text ? std::string(",") + text + "," : "";
  checks().races = !text || all.find(",races,") != std::string::npos;
  checks().initialised = !text || all.find(",initialised,") != std::string::npos;
  checks().global_initialised = !text || all.find(",global,") != std::string::npos;
}

void Driver::reset() {
  streams.clear();
  events.clear();
  modules.clear();
  functions.clear();
  for (auto& [memory, bytes] : host) std::free(memory);
  host.clear();
  for (auto& device : devices) device->memory.reset();
  for (auto& context : contexts) context.retained = 0;
  for (auto& stream : legacy) stream.queue.clear();
  broken = cuda::kSuccess;
  report.clear();
  calls.clear();
  failures.clear();
  kernel_launches.clear();
  read_environment();
  while (int(devices.size()) < settings.devices) {
    devices.push_back(std::make_unique<Device>());
    devices.back()->ordinal = int(devices.size()) - 1;
  }
  contexts.resize(devices.size());
  legacy.resize(devices.size());
  for (std::size_t n = 0; n < devices.size(); ++n) {
    contexts[n].device = legacy[n].device = devices[n].get();
    legacy[n].blocking = true;
    devices[n]->memory.limit = settings.memory;
  }
}

Result enter(const char* name, bool needs_context) {
  Driver& d = driver();
  std::uint64_t call = ++d.calls[name];
  auto failure = d.failures.find(name);
  if (failure != d.failures.end() && failure->second.first == call) return failure->second.second;
  if (!d.initialised) return cuda::kNotInitialized;
  if (d.broken != cuda::kSuccess) return d.broken;
  return needs_context && !device_now() ? cuda::kInvalidContext : cuda::kSuccess;
}

}  // namespace simulator

using namespace simulator;
using namespace stablexla::cuda;

#define ENTER(name, context)                                     \
  std::lock_guard<std::recursive_mutex> guard(driver().lock);    \
  if (Result failed = enter(#name, context)) return failed;

namespace {

struct ErrorText {
  Result code;
  const char* name;
  const char* text;
};
const ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"}};

Device* device_at(int ordinal) {
  Driver& d = driver();
  return ordinal >= 0 && ordinal < d.settings.devices ? d.devices[std::size_t(ordinal)].get() : nullptr;
}

int shared_per_block(int chip) {
  if (chip >= 90 && chip < 120) return 227 * 1024;
  if (chip == 80 || chip == 87) return 163 * 1024;
  return chip == 70 ? 96 * 1024 : chip == 75 ? 64 * 1024 : 99 * 1024;
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  Driver& d = driver();
  auto failure = d.failures.find("cuInit");
  if (failure != d.failures.end() && failure->second.first == ++d.calls["cuInit"]) return failure->second.second;
  if (flags) return kInvalidValue;
  if (!d.initialised) {
    d.initialised = true;
    auto failures = d.failures;
    d.reset();
    d.failures = failures;
  }
  return d.settings.devices ? kSuccess : kNoDevice;
}

Result cuDriverGetVersion(int* version) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  if (!driver().initialised) driver().read_environment();
  *version = driver().settings.driver;
  return kSuccess;
}

Result cuGetErrorName(Result error, const char** text) {
  for (const ErrorText& e : kErrors) {
    if (e.code == error) return *text = e.name, kSuccess;
  }
  *text = nullptr;
  return kInvalidValue;
}

Result cuGetErrorString(Result error, const char** text) {
  for (const ErrorText& e : kErrors) {
    if (e.code == error) return *text = e.text, kSuccess;
  }
  *text = nullptr;
  return kInvalidValue;
}

Result cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount, false);
  *count = driver().settings.devices;
  return kSuccess;
}

Result cuDeviceGet(Ordinal* device, int ordinal) {
  ENTER(cuDeviceGet, false);
  if (!device_at(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int length, Ordinal device) {
  ENTER(cuDeviceGetName, false);
  if (!device_at(device)) return kInvalidDevice;
  std::snprintf(name, std::size_t(length), "Simulated GPU");
  return kSuccess;
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, Ordinal device) {
  ENTER(cuDeviceTotalMem_v2, false);
  if (!device_at(device)) return kInvalidDevice;
  *bytes = driver().settings.memory;
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, Ordinal device) {
  ENTER(cuDeviceGetAttribute, false);
  if (!device_at(device)) return kInvalidDevice;
  int chip = driver().settings.chip;
  const std::map<int, int> values = {
      {kMaxThreadsPerBlock, 1024}, {kMaxGridDimX, 2147483647}, {kMaxSharedMemoryPerBlock, 48 * 1024}, {kWarpSize, 32},
      {kMaxRegistersPerBlock, 65536}, {kClockRate, 1980000}, {kMultiprocessorCount, chip >= 90 ? 132 : 108},
      {kMemoryClockRate, 2619000}, {kGlobalMemoryBusWidth, 5120}, {kL2CacheSize, 50 << 20},
      {kMaxThreadsPerMultiprocessor, 2048}, {kUnifiedAddressing, 1}, {kComputeCapabilityMajor, chip / 10},
      {kComputeCapabilityMinor, chip % 10}, {kMaxSharedMemoryPerMultiprocessor, shared_per_block(chip) + 1024},
      {kMaxSharedMemoryPerBlockOptin, shared_per_block(chip)}, {kReservedSharedMemoryPerBlock, 1024},
      {kMemoryPoolsSupported, driver().settings.pools}};
  auto found = values.find(attribute);
  if (found == values.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, Ordinal device) {
  ENTER(cuDevicePrimaryCtxRetain, false);
  if (!device_at(device)) return kInvalidDevice;
  ContextState& state = driver().contexts[std::size_t(device)];
  ++state.retained;
  *context = reinterpret_cast<Context>(&state);
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  ENTER(cuDevicePrimaryCtxRelease_v2, false);
  if (!device_at(device)) return kInvalidDevice;
  ContextState& state = driver().contexts[std::size_t(device)];
  if (!state.retained) return kInvalidContext;
  --state.retained;
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  ENTER(cuCtxPushCurrent_v2, false);
  for (ContextState& state : driver().contexts) {
    if (reinterpret_cast<Context>(&state) != context || !state.retained) continue;
    current().push_back(state.device);
    return kSuccess;
  }
  return kInvalidContext;
}

Result cuCtxPopCurrent_v2(Context* context) {
  ENTER(cuCtxPopCurrent_v2, false);
  if (current().empty()) return kInvalidContext;
  if (context) *context = reinterpret_cast<Context>(&driver().contexts[std::size_t(current().back()->ordinal)]);
  current().pop_back();
  return kSuccess;
}

Result cuCtxSynchronize() {
  ENTER(cuCtxSynchronize, true);
  drain_device(*device_now());
  return driver().broken;
}

// ---- What tests ask for; no part of the driver.

// What was found wrong last, "" when nothing.
const char* simulator_report() { return driver().report.c_str(); }

// Everything back to the begin, with the environment read again.
void simulator_reset() {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  driver().initialised = true;
  driver().reset();
}

// The nth call from now of a function gives an error code; 0 takes that back.
void simulator_fail(const char* function, std::uint64_t nth, int code) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  driver().failures[function] = {driver().calls[function] + nth, Result(code)};
}

std::uint64_t simulator_calls(const char* function) { return driver().calls[function]; }
std::uint64_t simulator_instructions() { return driver().executed; }
std::uint64_t simulator_launches() { return driver().launches; }

std::uint64_t simulator_allocated_bytes(int device) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  return device_at(device) ? device_at(device)->memory.allocated() : 0;
}
std::uint64_t simulator_largest_bytes(int device) {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  return device_at(device) ? device_at(device)->memory.largest() : 0;
}
std::uint64_t simulator_host_bytes() {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  std::uint64_t all = 0;
  for (auto& [memory, bytes] : driver().host) all += bytes;
  return all;
}
// Handles that were not given back.
std::uint64_t simulator_handles() {
  std::lock_guard<std::recursive_mutex> guard(driver().lock);
  return driver().streams.size() + driver().events.size() + driver().modules.size();
}

}  // extern "C"
