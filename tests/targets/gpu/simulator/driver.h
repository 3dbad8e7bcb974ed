// The driver's objects behind its handles, and one lock for all.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "device.h"
#include "program.h"

namespace stablexla::cuda {
#define DECLARE(name, parameters) extern "C" Result name parameters;
STABLEXLA_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
}  // namespace stablexla::cuda

namespace simulator {

namespace cuda = stablexla::cuda;
using cuda::Result;

struct Work {
  std::uint64_t number = 0;  // of all work that was ever handed in
  std::function<void()> run;
};

struct StreamState {
  Device* device = nullptr;
  bool blocking = false;  // with the legacy stream
  std::deque<Work> queue;
};

struct EventState {
  Device* device = nullptr;
  bool recorded = false, timed = true;
  std::uint64_t pending = 0;  // the work that records it; 0 when done
  StreamState* stream = nullptr;
  std::uint64_t time = 0;
};

struct LoadedModule {
  Device* device = nullptr;
  Module module;
  std::map<std::string, struct LoadedFunction> functions;
};

struct LoadedFunction {
  LoadedModule* owner = nullptr;
  const Function* function = nullptr;
  int dynamic_shared = 48 * 1024;  // what a launch may ask for
};

struct ContextState {
  Device* device = nullptr;
  int retained = 0;
};

// Settings, from the environment: SIMULATOR_CHIP, _DRIVER, _DEVICES, _MEMORY, _LAZY, _SEED, _CHECKS, _FAIL.
struct Settings {
  int chip = 90, driver = 12080, devices = 2;
  bool lazy = false, pools = true;
  unsigned seed = 1;
  std::size_t memory = std::size_t(80) << 30;
  std::uint64_t turns = 64;
};

struct Driver {
  std::recursive_mutex lock;
  Settings settings;
  bool initialised = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<ContextState> contexts;
  std::map<StreamState*, std::unique_ptr<StreamState>> streams;
  std::map<EventState*, std::unique_ptr<EventState>> events;
  std::map<LoadedModule*, std::unique_ptr<LoadedModule>> modules;
  std::map<LoadedFunction*, LoadedModule*> functions;
  std::map<void*, std::size_t> host;  // pinned memory
  std::vector<StreamState> legacy;    // of each device
  Result broken = cuda::kSuccess;     // after a fault nothing works any more
  std::string report;
  std::uint64_t launches = 0, work = 0, executed = 0;
  std::map<std::string, std::uint64_t> calls;
  std::map<std::string, std::pair<std::uint64_t, Result>> failures;  // which call of a function fails, and how
  std::map<std::string, std::uint64_t> kernel_launches;

  void read_environment();
  void reset();
};

Driver& driver();
std::vector<Device*>& current();  // the calling thread's stack of contexts
Device* device_now();

// Streams.
StreamState* stream_of(cuda::Stream handle, Result& error);
Result enqueue(cuda::Stream handle, std::function<void()> run, bool now);
void drain(StreamState& stream, std::uint64_t until);
void drain_device(Device& device);
void drain_all();

// The begin of every function: an injected failure, what is broken, whether it is initialised.
Result enter(const char* name, bool needs_context);

}  // namespace simulator
