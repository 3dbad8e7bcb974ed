#include "gpu_driver.h"

#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <atomic>
#include <map>
#include <utility>

#include "arrays.h"
#include "gpu_device.h"

namespace stablexla::gpu {
namespace {

constexpr int kOldestVersion = 11020;  // memory pools; older drivers do not load the PTX generated here either
constexpr const char* kSupport = "stablexla.targets.runtime.gpu_driver";

std::atomic<bool> forked{false};
Driver* in_use = nullptr;  // these two are protected by the GIL
std::map<std::string, std::unique_ptr<Driver>>* opened = nullptr;

std::string release(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void* find(void* library, const char* name, const std::string& path) {
  void* found = dlsym(library, name);
  if (found == nullptr)
    throw Error("the CUDA driver is too old: " + path + " has no " + name,
                "a driver of CUDA " + release(kOldestVersion) + " or newer");
  return found;
}

[[noreturn]] void refuse(const cuda::Functions& cu, cuda::Result result, const std::string& path) {
  if (result == cuda::kNoDevice) throw Error("the CUDA driver finds no device", "nvidia-smi; CUDA_VISIBLE_DEVICES");
  const char* name = nullptr;
  cu.cuGetErrorName(result, &name);
  throw Error("the CUDA driver cannot be started: " +
                  std::string(name != nullptr ? name : std::to_string(int(result)).c_str()) + " from " + path,
              "nvidia-smi; the library and the kernel's module must be of one version");
}

}  // namespace

void check_not_forked() {
  if (is_forked())
    throw Error("this process was forked from one that had used a GPU, and cannot use it",
                "multiprocessing.set_start_method(\"spawn\")");
}

bool is_forked() { return forked.load(std::memory_order_relaxed); }

Driver::Driver(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    const bool is_chosen = path.find('/') != std::string::npos;
    throw Error("no CUDA driver" + (is_chosen && why != nullptr ? std::string(": ") + why : ""),
                is_chosen ? "STABLEXLA_CUDA_DRIVER" : path + ", which comes with NVIDIA's driver");
  }
#define STABLEXLA_CUDA_FIND(name, parameters) cu.name = reinterpret_cast<decltype(cu.name)>(find(library, #name, path));
  STABLEXLA_CUDA_FUNCTIONS(STABLEXLA_CUDA_FIND)
#undef STABLEXLA_CUDA_FIND
  const cuda::Result started = cu.cuInit(0);
  if (started != cuda::kSuccess) refuse(cu, started, path);
  if (cu.cuDriverGetVersion(&version) != cuda::kSuccess) version = 0;
  if (version < kOldestVersion)
    throw Error("the CUDA driver is too old: it is of CUDA " + release(version),
                "a driver of CUDA " + release(kOldestVersion) + " or newer");
  int found = 0;
  const cuda::Result counted = cu.cuDeviceGetCount(&found);
  if (counted != cuda::kSuccess || found == 0) refuse(cu, counted == cuda::kSuccess ? cuda::kNoDevice : counted, path);
  for (int number = 0; number < found; ++number) devices_.push_back(std::make_unique<Device>(*this, number));
}

Driver& Driver::open(const std::string& path) {
  if (opened == nullptr) {
    opened = new std::map<std::string, std::unique_ptr<Driver>>;  // leaked on purpose: arrays may die after it
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
  }
  auto& driver = (*opened)[path];
  if (driver == nullptr) driver.reset(new Driver(path));
  return *driver;
}

Driver& Driver::get() {
  check_not_forked();
  if (in_use == nullptr) in_use = &open(nb::cast<std::string>(cold_path("library", kSupport)()));
  return *in_use;
}

void Driver::use(const std::string& path) {
  if (!path.empty() && opened != nullptr && opened->count(path) != 0)
    (*opened)[path].release();  // its live objects go on using it
  in_use = path.empty() ? nullptr : &open(path);
}

Device& Driver::device(int number) {
  if (number < 0 || number >= count())
    throw Error("there is no GPU " + std::to_string(number) + "; there " +
                (count() == 1 ? "is 1" : "are " + std::to_string(count())) + ", counted from 0");
  return *devices_[static_cast<std::size_t>(number)];
}

std::string Driver::version_text() const { return release(version); }

std::string Driver::text(cuda::Result result) const {
  const char *name = nullptr, *words = nullptr;
  if (cu.cuGetErrorName(result, &name) != cuda::kSuccess || name == nullptr)
    return "CUDA error " + std::to_string(int(result));
  if (cu.cuGetErrorString(result, &words) != cuda::kSuccess || words == nullptr) return name;
  return std::string(name) + " (" + words + ")";
}

}  // namespace stablexla::gpu
