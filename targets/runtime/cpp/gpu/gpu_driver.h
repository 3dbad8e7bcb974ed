// The CUDA driver's library, opened when it is first needed, and its errors.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cuda_abi.h"

namespace stablexla::cuda {

struct Functions {
#define STABLEXLA_CUDA_POINTER(name, parameters) Result(*name) parameters = nullptr;
  STABLEXLA_CUDA_FUNCTIONS(STABLEXLA_CUDA_POINTER)
#undef STABLEXLA_CUDA_POINTER
};

}  // namespace stablexla::cuda

namespace stablexla::gpu {

// Translated to ExecutionError in Python.
struct Error : std::exception {
  explicit Error(std::string summary_, std::string hint_ = "") : summary(std::move(summary_)), hint(std::move(hint_)) {}
  const char* what() const noexcept override { return summary.c_str(); }
  std::string summary, hint;
};

class Device;

class Driver {
 public:
  // Returns the driver that programs run on; opened at the first call, which needs the GIL. Throws Error.
  static Driver& get();
  // Makes `get` return the driver in this library, initialized anew; with "" it searches for one again.
  static void use(const std::string& path);

  Device& device(int number);  // throws Error where it does not exist
  int count() const { return static_cast<int>(devices_.size()); }
  std::string version_text() const;  // the driver's CUDA release, as 12.4
  // "CUDA_ERROR_X (in words)".
  std::string text(cuda::Result result) const;

  cuda::Functions cu;
  int version = 0;  // 1000 * major + 10 * minor

 private:
  explicit Driver(const std::string& path);
  static Driver& open(const std::string& path);

  std::vector<std::unique_ptr<Device>> devices_;
};

// Whether this process was forked after the driver was opened, which makes it unusable here.
bool is_forked();
void check_not_forked();  // throws Error

}  // namespace stablexla::gpu
