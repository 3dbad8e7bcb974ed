// One GPU: its primary context, streams, and events on them (moments); memory is in gpu_memory.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu_driver.h"

namespace stablexla::gpu {

class Device;
class Memory;
class PinnedMemory;

// A stream of a device: an own one, or a foreign one by its handle.
class Stream {
 public:
  Stream(Device& device, cuda::Stream handle, bool is_ours) : device(device), handle(handle), is_ours(is_ours) {}
  ~Stream();
  Stream(const Stream&) = delete;

  void wait() const;                          // blocks the host until all queued work is done
  bool is_idle() const;
  void wait_for(cuda::Event event) const;     // orders later work after it
  void wait_for(const Stream& other) const;  // after all work queued there so far

  Device& device;
  const cuda::Stream handle;
  const bool is_ours;
};
using StreamRef = std::shared_ptr<Stream>;

// An event: completion of the work queued on a stream before it.
class Moment {
 public:
  Moment(StreamRef stream, cuda::Event event) : stream(std::move(stream)), event(event) {}
  ~Moment();
  Moment(const Moment&) = delete;

  bool is_past() const;
  void wait() const;

  const StreamRef stream;
  const cuda::Event event;
};
using MomentRef = std::shared_ptr<Moment>;

class Device {
 public:
  Device(Driver& driver, int number);
  ~Device();

  int attribute(cuda::DeviceAttribute attribute) const;  // needs no context
  std::string chip() const { return "sm_" + std::to_string(major_ * 10 + minor_); }

  // Throws Error with `what` when the driver failed, and records when that lost the context.
  void check(cuda::Result result, const char* what) const {
    if (result != cuda::kSuccess) refuse(result, what);
  }
  [[noreturn]] void refuse(cuda::Result result, const std::string& what) const;
  void check_alive() const;  // throws Error when the context is lost
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }

  StreamRef default_stream();
  StreamRef new_stream();
  MomentRef record(const StreamRef& stream);
  // Records a moment to keep resources until; null when nothing runs any more.
  MomentRef record_or_wait(const StreamRef& stream) noexcept;
  // Pool of events for moments.
  cuda::Event take_event() const;
  void give_event(cuda::Event event) const;

  Memory& memory() { return context(), *memory_; }
  PinnedMemory& pinned() { return context(), *pinned_; }
  cuda::Context context();

  Driver& driver;
  const cuda::Functions& cu;
  const int number;
  cuda::Ordinal ordinal = 0;
  std::string name;
  std::size_t total_bytes = 0;

 private:
  void open();

  int major_ = 0, minor_ = 0;
  std::mutex opening_;
  std::atomic<cuda::Context> context_{nullptr};
  StreamRef default_stream_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<PinnedMemory> pinned_;
  mutable std::mutex events_mutex_;
  mutable std::vector<cuda::Event> events_;
  mutable std::atomic<bool> is_lost_{false};
  mutable std::mutex why_mutex_;
  mutable std::string why_lost_;
};

// Makes the device's context current on this thread, and restores the former one at the end of the scope.
class ContextScope {
 public:
  explicit ContextScope(Device& device) : cu_(device.cu) {
    device.check(cu_.cuCtxPushCurrent_v2(device.context()), "making its context current");
  }
  ~ContextScope() {
    cuda::Context popped;
    cu_.cuCtxPopCurrent_v2(&popped);
  }
  ContextScope(const ContextScope&) = delete;

 private:
  const cuda::Functions& cu_;
};

}  // namespace stablexla::gpu
