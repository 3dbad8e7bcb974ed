#include "gpu_module.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace stablexla::gpu {
namespace {

constexpr std::int64_t kFreeShared = 48 << 10;  // more requires an attribute of the kernel
constexpr std::int64_t kMaxBlocks = 0x7FFFFFFF;

bool is_cubin(const std::string& image) { return image.compare(0, 4, "\x7f" "ELF") == 0; }

// 78 for ".version 7.8"; 0 for an image that is no PTX.
int ptx_version(const std::string& image) {
  const std::size_t place = is_cubin(image) ? std::string::npos : image.find(".version ");
  if (place == std::string::npos) return 0;
  char* end = nullptr;
  const long major = std::strtol(image.c_str() + place + 9, &end, 10);
  return static_cast<int>(10 * major + (*end == '.' ? std::strtol(end + 1, nullptr, 10) : 0));
}

std::string last_lines(std::string_view log) {
  log = log.substr(0, log.find('\0'));
  while (!log.empty() && (log.back() == '\n' || log.back() == ' ')) log.remove_suffix(1);
  return std::string(log);
}

}  // namespace

std::string release_of_ptx(int version) {
  if (version >= 90) return std::to_string(version / 10 + 4) + "." + std::to_string(version % 10);
  if (version >= 86) return std::to_string(12) + "." + std::to_string(version - 80 + 1);
  if (version >= 70) return std::to_string(version / 10 + 4) + "." + std::to_string(version % 10);
  if (version >= 63) return "10." + std::to_string(version - 63);
  return version >= 60 ? "9." + std::to_string(version - 60) : "";
}

LoadedProgram::LoadedProgram(Device& device_, const std::string& program, const std::string& chip,
                             const std::string& image,
                             const std::vector<std::pair<std::string, std::int64_t>>& wanted,
                             const std::vector<HostBytes>& all_constants)
    : device(device_), program_(program) {
  try {
    if (!wanted.empty()) load(image, chip);
    for (const auto& [name, shared] : wanted) {
      Kernel kernel;
      kernel.name = name;
      const cuda::Result found = device.cu.cuModuleGetFunction(&kernel.function, module_, name.c_str());
      if (found != cuda::kSuccess) device.refuse(found, "looking for the kernel " + name + " of " + program_);
      device.check(device.cu.cuFuncGetAttribute(&kernel.static_shared, cuda::kFunctionSharedSizeBytes, kernel.function),
                   "asking what a kernel needs");
      device.check(
          device.cu.cuFuncGetAttribute(&kernel.max_threads, cuda::kFunctionMaxThreadsPerBlock, kernel.function),
          "asking what a kernel needs");
      kernel.allowed_shared = static_cast<int>(std::max<std::int64_t>(0, kFreeShared - kernel.static_shared));
      allow_shared(kernel, shared);
      kernels.push_back(std::move(kernel));
    }
    copy_constants(all_constants);
  } catch (...) {
    unload();
    throw;
  }
}

LoadedProgram::~LoadedProgram() {
  if (is_forked()) return;
  try {
    ContextScope scope(device);
    try {
      if (module_ != nullptr) wait_for_all(device);  // a kernel may be running still
    } catch (const Error&) {
      // the context is lost
    }
    unload();
  } catch (const Error&) {
    // there is no context any more
  }
}

void LoadedProgram::unload() noexcept {
  if (module_ != nullptr) device.cu.cuModuleUnload(module_);
  if (constants_ != 0) device.memory().give(constants_, constants_bytes_, device.default_stream());
  module_ = nullptr;
  constants_ = 0;
}

void LoadedProgram::load(const std::string& image, const std::string& chip) {
  std::string log(8192, '\0');
  cuda::JitOption options[] = {cuda::kJitErrorLogBuffer, cuda::kJitErrorLogBufferSizeBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const cuda::Result result = device.cu.cuModuleLoadDataEx(&module_, image.c_str(), 2, options, values);
  if (result == cuda::kSuccess) return;
  module_ = nullptr;
  const std::string made = chip.empty() ? "" : ", compiled for " + chip + ",";
  if (is_cubin(image) && !device.is_lost())
    throw UnloadableCubin(program_ + ": the driver does not take the cubin: " + device.driver.text(result));
  const int version = ptx_version(image);
  if (result == cuda::kUnsupportedPtxVersion) {
    const std::string needed = release_of_ptx(version);
    throw Error("the CUDA driver is too old for " + program_ + ": it is of CUDA " + device.driver.version_text() +
                    ", and PTX " + std::to_string(version / 10) + "." + std::to_string(version % 10) +
                    " needs one of CUDA " + needed + " or newer",
                "sx.gpu.target(ptx=...) with an older version of PTX");
  }
  if (result == cuda::kNoBinaryForGpu || result == cuda::kInvalidImage)
    throw Error(program_ + made + " cannot run on GPU " + std::to_string(device.number) + ", " + device.name +
                    ": it is " + device.chip() + " (" + device.driver.text(result) + ")",
                "target=\"gpu:" + device.chip() + "\"");
  const std::string said = last_lines(log);
  device.refuse(result, "loading the kernels of " + program_ + (said.empty() ? "" : "; it says: " + said));
}

void LoadedProgram::allow_shared(Kernel& kernel, std::int64_t bytes) const {
  if (bytes <= kernel.allowed_shared) return;
  const int most = device.attribute(cuda::kMaxSharedMemoryPerBlockOptin) - kernel.static_shared;
  if (bytes > most)
    throw Error("kernel " + kernel.name + " of " + program_ + " needs " +
                    std::to_string(bytes + kernel.static_shared) + " bytes of shared memory a block, and GPU " +
                    std::to_string(device.number) + ", " + device.name + ", has " +
                    std::to_string(most + kernel.static_shared),
                "target=\"gpu:" + device.chip() + "\"");
  device.check(device.cu.cuFuncSetAttribute(kernel.function, cuda::kFunctionMaxDynamicSharedSizeBytes,
                                            static_cast<int>(bytes)),
               "asking for more shared memory");
  kernel.allowed_shared = static_cast<int>(bytes);
}

void LoadedProgram::copy_constants(const std::vector<HostBytes>& all) {
  std::vector<std::size_t> places;
  for (const HostBytes& each : all) {
    places.push_back(constants_bytes_);
    constants_bytes_ += (each.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  const StreamRef stream = device.default_stream();
  if (constants_bytes_ != 0)
    constants_ = device.memory().take(constants_bytes_, *stream, "the constants of " + program_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    constants.push_back(all[i].bytes != 0 ? constants_ + places[i] : kNothing);
    if (all[i].bytes == 0) continue;
    device.check(
        device.cu.cuMemcpyHtoDAsync_v2(constants.back(), all[i].data, all[i].bytes, stream->handle),
        "copying constants");
  }
  if (constants_bytes_ != 0) stream->wait();  // other streams read them, too
}

void LoadedProgram::launch(std::int64_t number, std::int64_t blocks, std::int64_t threads, std::int64_t shared,
                           void** parameters, const Stream& stream) {
  if (blocks == 0 || threads == 0) return;
  if (number < 0 || static_cast<std::size_t>(number) >= kernels.size())
    throw Error(program_ + ": there is no kernel " + std::to_string(number));
  Kernel& kernel = kernels[static_cast<std::size_t>(number)];
  allow_shared(kernel, shared);
  if (threads > kernel.max_threads || blocks > kMaxBlocks)
    throw Error("kernel " + kernel.name + " of " + program_ + ": a launch of " + std::to_string(blocks) +
                " blocks of " + std::to_string(threads) + " threads, where GPU " + std::to_string(device.number) +
                " runs at most " + std::to_string(kMaxBlocks) + " of " + std::to_string(kernel.max_threads));
  const cuda::Result result =
      device.cu.cuLaunchKernel(kernel.function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1,
                               1, static_cast<unsigned>(shared), stream.handle, parameters, nullptr);
  if (result != cuda::kSuccess) device.refuse(result, "launching the kernel " + kernel.name + " of " + program_);
}

}  // namespace stablexla::gpu
