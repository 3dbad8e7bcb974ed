#include "gpu_device.h"

#include <utility>

#include "gpu_memory.h"
#include "gpu_pinned.h"

namespace stablexla::gpu {
namespace {

// Sticky errors, by which the context is lost: a kernel made an illegal access, for example.
bool is_sticky(cuda::Result result) {
  switch (result) {
    case cuda::kEccUncorrectable:
    case cuda::kIllegalAddress:
    case cuda::kLaunchTimeout:
    case cuda::kContextIsDestroyed:
    case cuda::kAssertFailed:
    case cuda::kHardwareStackError:
    case cuda::kIllegalInstruction:
    case cuda::kMisalignedAddress:
    case cuda::kInvalidAddressSpace:
    case cuda::kInvalidProgramCounter:
    case cuda::kLaunchFailed:
      return true;
    default:
      return false;
  }
}

}  // namespace

Stream::~Stream() {
  if (!is_ours || is_forked()) return;
  try {
    ContextScope scope(device);
    device.cu.cuStreamDestroy_v2(handle);  // queued work still completes
  } catch (const Error&) {
  }
}

void Stream::wait() const { device.check(device.cu.cuStreamSynchronize(handle), "waiting for a stream"); }

bool Stream::is_idle() const {
  const cuda::Result result = device.cu.cuStreamQuery(handle);
  if (result == cuda::kNotReady) return false;
  device.check(result, "asking a stream whether it is done");
  return true;
}

void Stream::wait_for(cuda::Event event) const {
  device.check(device.cu.cuStreamWaitEvent(handle, event, 0), "making a stream wait for another one");
}

void Stream::wait_for(const Stream& other) const {
  if (other.handle == handle) return;
  const cuda::Event event = device.take_event();
  const cuda::Result recorded = device.cu.cuEventRecord(event, other.handle);
  const cuda::Result waits =
      recorded == cuda::kSuccess ? device.cu.cuStreamWaitEvent(handle, event, 0) : recorded;
  device.give_event(event);  // a wait that was queued keeps the recorded state, so the event can be reused
  device.check(waits, "making a stream wait for another one");
}

Moment::~Moment() { stream->device.give_event(event); }

bool Moment::is_past() const {
  const cuda::Result result = stream->device.cu.cuEventQuery(event);
  if (result == cuda::kNotReady) return false;
  stream->device.check(result, "asking whether a program is done");
  return true;
}

void Moment::wait() const {
  stream->device.check(stream->device.cu.cuEventSynchronize(event), "waiting for a program");
}

Device::Device(Driver& driver_, int number_) : driver(driver_), cu(driver_.cu), number(number_) {
  check(cu.cuDeviceGet(&ordinal, number), "finding it");
  char text[256] = "";
  check(cu.cuDeviceGetName(text, sizeof text, ordinal), "asking its name");
  name = text;
  check(cu.cuDeviceTotalMem_v2(&total_bytes, ordinal), "asking for the size of its memory");
  major_ = attribute(cuda::kComputeCapabilityMajor);
  minor_ = attribute(cuda::kComputeCapabilityMinor);
}

Device::~Device() = default;

int Device::attribute(cuda::DeviceAttribute attribute) const {
  int value = 0;
  check(cu.cuDeviceGetAttribute(&value, attribute, ordinal), "asking what it can do");
  return value;
}

void Device::refuse(cuda::Result result, const std::string& what) const {
  if (is_lost()) check_alive();
  const std::string text = "GPU " + std::to_string(number) + ": " + driver.text(result) + " while " + what;
  if (!is_sticky(result)) throw Error(text);
  {
    std::lock_guard<std::mutex> lock(why_mutex_);
    why_lost_ = driver.text(result);
  }
  is_lost_ = true;
  throw Error(text + ": a kernel, of this program or of an earlier one, did what it must not, and the context is lost",
              "nothing runs on this GPU any more in this process: start a new one; compute-sanitizer finds the kernel");
}

void Device::check_alive() const {
  check_not_forked();
  if (!is_lost()) return;
  std::lock_guard<std::mutex> lock(why_mutex_);
  throw Error("GPU " + std::to_string(number) + ": the context was lost by an earlier error, " + why_lost_,
              "nothing runs on this GPU any more in this process: start a new one");
}

cuda::Context Device::context() {
  cuda::Context context = context_.load(std::memory_order_acquire);
  if (context == nullptr) {
    open();
    context = context_.load();
  }
  return context;
}

void Device::open() {
  std::lock_guard<std::mutex> lock(opening_);
  if (context_.load() != nullptr) return;
  cuda::Context context = nullptr;
  check(cu.cuDevicePrimaryCtxRetain(&context, ordinal), "making its context");
  cuda::Result result = cu.cuCtxPushCurrent_v2(context);
  cuda::Stream handle = nullptr;
  if (result == cuda::kSuccess) {
    result = cu.cuStreamCreate(&handle, cuda::kStreamNonBlocking);
    cuda::Context popped;
    cu.cuCtxPopCurrent_v2(&popped);
  }
  if (result != cuda::kSuccess) {
    cu.cuDevicePrimaryCtxRelease_v2(ordinal);
    refuse(result, "making its context");
  }
  memory_ = std::make_unique<Memory>(*this);
  pinned_ = std::make_unique<PinnedMemory>(*this);
  default_stream_ = std::make_shared<Stream>(*this, handle, true);
  context_.store(context, std::memory_order_release);
}

StreamRef Device::default_stream() {
  context();
  return default_stream_;
}

StreamRef Device::new_stream() {
  ContextScope scope(*this);
  cuda::Stream handle = nullptr;
  check(cu.cuStreamCreate(&handle, cuda::kStreamNonBlocking), "making a stream");
  return std::make_shared<Stream>(*this, handle, true);
}

MomentRef Device::record(const StreamRef& stream) {
  const cuda::Event event = take_event();
  const cuda::Result result = cu.cuEventRecord(event, stream->handle);
  if (result != cuda::kSuccess) {
    give_event(event);
    refuse(result, "marking the end of a program");
  }
  return std::make_shared<Moment>(stream, event);
}

MomentRef Device::record_or_wait(const StreamRef& stream) noexcept {
  try {
    return record(stream);
  } catch (const Error&) {
    cu.cuStreamSynchronize(stream->handle);
    return nullptr;
  }
}

cuda::Event Device::take_event() const {
  {
    std::lock_guard<std::mutex> lock(events_mutex_);
    if (!events_.empty()) {
      const cuda::Event event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  cuda::Event event = nullptr;
  check(cu.cuEventCreate(&event, cuda::kEventDisableTiming), "making an event");
  return event;
}

void Device::give_event(cuda::Event event) const {
  std::lock_guard<std::mutex> lock(events_mutex_);
  events_.push_back(event);
}

}  // namespace stablexla::gpu
