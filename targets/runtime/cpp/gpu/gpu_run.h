// One run of a program on a device: the functions that its main calls, on the thread that runs it.
#pragma once

#include <setjmp.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu_module.h"
#include "gpu_pinned.h"
#include "hosted_run.h"

// Called by main. After a failure main is left at once.
extern "C" {
#define STABLEXLA_EXPORTED __attribute__((visibility("default")))
// Addresses of the parameters' values, as for cuLaunchKernel; the kernel is its number in the program's launch table.
STABLEXLA_EXPORTED void stablexla_gpu_launch(std::int64_t kernel, std::int64_t blocks, std::int64_t threads,
                                             std::int64_t shared_bytes, void** parameters);
STABLEXLA_EXPORTED void stablexla_gpu_copy(void* to, const void* from, std::int64_t bytes);  // on the device
STABLEXLA_EXPORTED void stablexla_gpu_read(void* to_host, const void* from_device, std::int64_t bytes);  // waits
STABLEXLA_EXPORTED void stablexla_gpu_write(void* to_device, const void* from_host, std::int64_t bytes);
// Returns host memory for a host function's argument: with a copy of the device array, if `copy` is not 0.
STABLEXLA_EXPORTED void* stablexla_gpu_to_host(const void* device, std::int64_t bytes, std::int64_t copy);
STABLEXLA_EXPORTED void stablexla_gpu_from_host(void* device, const void* host, std::int64_t bytes);
#undef STABLEXLA_EXPORTED
}

namespace stablexla::gpu {

// Staging buffers in host memory for device arrays that host functions read and write; such a function may keep one.
class Staging final : public SharedMemory {
 public:
  explicit Staging(Device& device) : device_(device) {}

  struct Place {
    Pinned pinned;
    bool is_uploaded = false;  // a copy from it may be in flight
  };
  // Returns the same buffer for the same array, so that loops do not allocate.
  Place& place(const void* device, std::size_t bytes);
  Place* find(const void* device, std::size_t bytes);  // null if there is none
  bool is_used() const { return places_ != nullptr; }
  void waited();                                       // all copies are done
  void end_at(const MomentRef& moment) {               // when the last ones are
    if (places_ != nullptr) places_->until = moment;
  }

  nb::object share() override;
  void after_call() override;

 private:
  struct Places {
    std::map<std::pair<const void*, std::size_t>, Place> all;
    Device* device = nullptr;
    MomentRef until;
    ~Places();
  };

  Device& device_;
  std::shared_ptr<Places> places_;
  nb::object owner_;
};

// Time of a launch, in the order of launches.
struct Timing {
  std::int64_t kernel;
  cuda::Event begin, end;
};
struct Timings {
  ~Timings();
  Device* device = nullptr;
  std::vector<Timing> all;
};

class Run {
 public:
  Run(LoadedProgram& program, StreamRef stream);
  ~Run();
  Run(const Run&) = delete;

  // Without the GIL and with the context. False when main was left early: because of `error`, or of an exception of a
  // host function.
  bool run(Entry entry, void** packed, HostedRun* hosted, ReleasedGil& gil, RunControl& control);

  void launch(std::int64_t kernel, std::int64_t blocks, std::int64_t threads, std::int64_t shared, void** parameters);
  void copy(cuda::Address to, cuda::Address from, std::size_t bytes);
  void read(void* to, cuda::Address from, std::size_t bytes);
  void write(cuda::Address to, const void* from, std::size_t bytes);
  void* to_host(const void* device, std::size_t bytes, bool copy);
  void from_host(cuda::Address to, const void* from, std::size_t bytes);
  void fail(Error error) { this->error = std::move(error); }
  [[noreturn]] void leave();

  Device& device;
  const StreamRef stream;
  std::optional<Error> error;
  Staging staging;
  Timings* timings = nullptr;

 private:
  void wait();
  char* slot(std::size_t bytes);

  LoadedProgram& program_;
  HostedRun* hosted_ = nullptr;
  Run* outer_ = nullptr;
  Pinned slots_;  // for small values in flight
  std::size_t used_ = 0;
  jmp_buf way_out_;
};

}  // namespace stablexla::gpu
