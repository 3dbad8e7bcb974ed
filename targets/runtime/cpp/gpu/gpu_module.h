// The kernels and constants of one executable on one device.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpu_memory.h"

namespace stablexla::gpu {

struct Kernel {
  cuda::Function function = nullptr;
  std::string name;
  int static_shared = 0, allowed_shared = 0, max_threads = 0;
};

// A cubin that the driver refuses, as one of a newer assembler.
struct UnloadableCubin : Error {
  using Error::Error;
};

// A range of host memory.
struct HostBytes {
  const void* data;
  std::size_t bytes;
};

class LoadedProgram {
 public:
  // `kernels` are names in the image, PTX or a cubin, each with the maximum dynamic shared memory of its launches.
  // Made with the context and without the GIL; throws Error.
  LoadedProgram(Device& device, const std::string& program, const std::string& chip, const std::string& image,
                const std::vector<std::pair<std::string, std::int64_t>>& kernels,
                const std::vector<HostBytes>& constants);
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;

  void launch(std::int64_t number, std::int64_t blocks, std::int64_t threads, std::int64_t shared, void** parameters,
              const Stream& stream);

  Device& device;
  std::vector<Kernel> kernels;
  std::vector<cuda::Address> constants;

 private:
  void load(const std::string& image, const std::string& chip);
  void allow_shared(Kernel& kernel, std::int64_t bytes) const;
  void copy_constants(const std::vector<HostBytes>& all);
  void unload() noexcept;

  std::string program_;
  cuda::Module module_ = nullptr;
  cuda::Address constants_ = 0;
  std::size_t constants_bytes_ = 0;
};

// Returns the first CUDA release that supports a PTX version, 78 for 7.8, as text; "" when it is not known.
std::string release_of_ptx(int version);

}  // namespace stablexla::gpu
