// Modules, functions and launches.
#include <cstring>

#include "driver.h"

using namespace simulator;
using namespace stablexla::cuda;

#define ENTER(name, context)                                     \
  std::lock_guard<std::recursive_mutex> guard(driver().lock);    \
  if (Result failed = enter(#name, context)) return failed;

namespace {

struct DeviceLoader : Loader {
  Device& device;
  explicit DeviceLoader(Device& d) : device(d) {}
  std::uint64_t allocate(std::int64_t bytes) override {
    std::uint64_t address = device.memory.allocate(std::size_t(bytes));
    if (!address) throw Fault(kOutOfMemory, "no memory for a module's variables");
    return address;
  }
  void write(std::uint64_t address, const std::vector<std::uint8_t>& bytes) override {
    Allocation* a = device.memory.find(address);
    std::memcpy(a->data, bytes.data(), bytes.size());
    std::fill(a->valid.begin(), a->valid.end(), 1);
  }
};

struct Log {
  char* text = nullptr;
  std::size_t bytes = 0;
  void write(const std::string& what) const {
    if (text && bytes) std::snprintf(text, bytes, "%s", what.c_str());
  }
};

Log error_log(unsigned count, const JitOption* options, void** values) {
  Log log;
  for (unsigned n = 0; n < count; ++n) {
    if (options[n] == kJitErrorLogBuffer) log.text = static_cast<char*>(values[n]);
    if (options[n] == kJitErrorLogBufferSizeBytes) log.bytes = reinterpret_cast<std::uintptr_t>(values[n]);
  }
  return log;
}

int most_shared() {
  int most = 0;
  cuDeviceGetAttribute(&most, kMaxSharedMemoryPerBlockOptin, 0);
  return most;
}

LoadedFunction* function_of(stablexla::cuda::Function handle) {
  auto* f = reinterpret_cast<LoadedFunction*>(handle);
  return driver().functions.count(f) ? f : nullptr;
}

Result refuse(const std::string& why, Result code) {
  driver().report = why;
  return code;
}

// The newest PTX that a driver takes.
int ptx_of_driver(int version) {
  const std::pair<int, int> known[] = {{13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84},
                                       {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11070, 77}};
  for (auto [driver_version, ptx] : known) {
    if (version >= driver_version) return ptx;
  }
  return 70;
}

}  // namespace

extern "C" {

Result cuModuleLoadDataEx(stablexla::cuda::Module* module, const void* image, unsigned count, JitOption* options, void** values) {
  ENTER(cuModuleLoadDataEx, true);
  Log log = error_log(count, options, values);
  const char* text = static_cast<const char*>(image);
  if (!std::memcmp(text, "\x7f" "ELF", 4)) return refuse("machine code is not simulated", kNoBinaryForGpu);
  auto loaded = std::make_unique<LoadedModule>();
  loaded->device = device_now();
  DeviceLoader loader(*device_now());
  try {
    loaded->module = load(text, driver().settings.chip, loader);
  } catch (const Refused& error) {
    log.write(error.what());
    return refuse(error.what(), kInvalidPtx);
  } catch (const Fault& error) {
    return refuse(error.what(), Result(error.code));
  }
  if (loaded->module.version > ptx_of_driver(driver().settings.driver)) {
    log.write("Unsupported .version; current version is older");
    return refuse("PTX " + std::to_string(loaded->module.version) + " is newer than the driver", kUnsupportedPtxVersion);
  }
  for (auto& [name, f] : loaded->module.functions) {
    LoadedFunction& made = loaded->functions[name];
    made.owner = loaded.get();
    made.function = &f;
    driver().functions[&made] = loaded.get();
  }
  *module = reinterpret_cast<stablexla::cuda::Module>(loaded.get());
  driver().modules[loaded.get()] = std::move(loaded);
  return kSuccess;
}

Result cuModuleUnload(stablexla::cuda::Module module) {
  ENTER(cuModuleUnload, true);
  auto* loaded = reinterpret_cast<LoadedModule*>(module);
  if (!driver().modules.count(loaded)) return kInvalidHandle;
  drain_device(*loaded->device);
  for (auto& [name, f] : loaded->functions) driver().functions.erase(&f);
  if (loaded->module.memory) loaded->device->memory.release(loaded->module.memory);
  driver().modules.erase(loaded);
  return driver().broken;
}

Result cuModuleGetFunction(stablexla::cuda::Function* function, stablexla::cuda::Module module, const char* name) {
  ENTER(cuModuleGetFunction, true);
  auto* loaded = reinterpret_cast<LoadedModule*>(module);
  if (!driver().modules.count(loaded)) return kInvalidHandle;
  auto found = loaded->functions.find(name);
  if (found == loaded->functions.end()) return kNotFound;
  *function = reinterpret_cast<stablexla::cuda::Function>(&found->second);
  return kSuccess;
}

Result cuFuncSetAttribute(stablexla::cuda::Function function, FunctionAttribute attribute, int value) {
  ENTER(cuFuncSetAttribute, true);
  LoadedFunction* f = function_of(function);
  if (!f) return kInvalidHandle;
  if (attribute == kFunctionPreferredSharedMemoryCarveout) return kSuccess;
  if (attribute != kFunctionMaxDynamicSharedSizeBytes) return kInvalidValue;
  if (value < 0 || value + int(f->function->static_shared) > most_shared()) {
    return refuse(std::to_string(value) + " bytes of shared memory are more than the device has", kInvalidValue);
  }
  f->dynamic_shared = value;
  return kSuccess;
}

Result cuFuncGetAttribute(int* value, FunctionAttribute attribute, stablexla::cuda::Function function) {
  ENTER(cuFuncGetAttribute, true);
  LoadedFunction* f = function_of(function);
  if (!f) return kInvalidHandle;
  const auto* t = f->function->threads;
  switch (attribute) {
    case kFunctionMaxThreadsPerBlock: *value = t[0] ? int(t[0] * t[1] * t[2]) : 1024; break;
    case kFunctionSharedSizeBytes: *value = int(f->function->static_shared); break;
    case kFunctionConstSizeBytes: *value = 0; break;
    case kFunctionLocalSizeBytes: *value = int(f->function->local); break;
    case kFunctionNumRegs: *value = 32; break;
    case kFunctionPtxVersion: *value = f->owner->module.version; break;
    case kFunctionBinaryVersion: *value = driver().settings.chip; break;
    case kFunctionMaxDynamicSharedSizeBytes: *value = f->dynamic_shared; break;
    default: return kInvalidValue;
  }
  return kSuccess;
}

Result cuLaunchKernel(stablexla::cuda::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra) {
  ENTER(cuLaunchKernel, true);
  LoadedFunction* f = function_of(function);
  if (!f) return kInvalidHandle;
  if (f->owner->device != device_now()) return kInvalidHandle;
  const simulator::Function& kernel = *f->function;
  std::uint64_t threads = std::uint64_t(block_x) * block_y * block_z;
  std::string name = "kernel " + kernel.name + ": ";
  if (extra) return refuse(name + "extra", kNotSupported);
  if (!grid_x || !grid_y || !grid_z || grid_y > 65535 || grid_z > 65535 || grid_x > 2147483647u) return refuse(name + "a grid of no blocks or too many", kInvalidValue);
  if (!threads || threads > 1024 || block_z > 64) return refuse(name + std::to_string(threads) + " threads in a block", kInvalidValue);
  const auto* most = kernel.threads;
  if (most[0]) {
    auto limit = std::uint64_t(most[0] * most[1] * most[2]);
    if (threads > limit || (kernel.threads_required && threads != limit)) {
      return refuse(name + std::to_string(threads) + " threads, made for " + std::to_string(limit), kInvalidValue);
    }
  }
  int allowed = std::max(0, std::min(f->dynamic_shared, most_shared() - int(kernel.static_shared)));
  if (f->dynamic_shared == 48 * 1024) allowed = std::max(0, 48 * 1024 - int(kernel.static_shared));
  if (int(shared_bytes) > allowed) {
    return refuse(name + std::to_string(shared_bytes) + " bytes of shared memory, " + std::to_string(allowed) + " are allowed", kInvalidValue);
  }
  auto launch = std::make_shared<Launch>();
  launch->module = &f->owner->module;
  launch->function = &kernel;
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  std::copy(grid, grid + 3, launch->grid);
  std::copy(block, block + 3, launch->block);
  launch->dynamic_shared = shared_bytes;
  launch->device = f->owner->device;
  launch->seed = driver().settings.seed;
  launch->limit = driver().settings.turns;
  launch->parameters.resize(std::size_t(kernel.parameters));
  for (std::size_t n = 0; n < kernel.parameter_bytes.size(); ++n) {
    if (!parameters || !parameters[n]) return refuse(name + "parameter " + std::to_string(n) + " is not there", kInvalidValue);
    std::memcpy(launch->parameters.data() + kernel.parameter_offsets[n], parameters[n], std::size_t(kernel.parameter_bytes[n]));
  }
  return enqueue(stream, [launch] {
    Driver& d = driver();
    launch->number = std::uint32_t(++d.launches);
    launch->device->released.clear();
    launch->device->acquired.clear();
    launch->run();
    d.executed += launch->executed;
  }, false);
}

}  // extern "C"
