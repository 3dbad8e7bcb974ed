#include "gpu_run.h"

#include <algorithm>
#include <cstring>

namespace stablexla::gpu {
namespace {

constexpr std::size_t kSlots = 64 << 10;

// A host function may run another program: runs of one thread form a stack.
thread_local Run* innermost = nullptr;

// Exceptions must not propagate through machine code.
template <typename Work>
bool well(Run& run, Work work) noexcept {
  try {
    work();
    return true;
  } catch (Error& error) {
    run.fail(std::move(error));
  } catch (const std::exception& error) {
    run.fail(Error(error.what()));
  }
  return false;
}

template <typename Work>
void or_leave(Work work) {
  Run& run = *innermost;
  if (!well(run, [&] { work(run); })) run.leave();
}

cuda::Address address(const void* device) { return reinterpret_cast<cuda::Address>(device); }

}  // namespace

Staging::Places::~Places() {
  for (auto& [key, place] : all) device->pinned().give(place.pinned, until);
}

Staging::Place& Staging::place(const void* device, std::size_t bytes) {
  if (places_ == nullptr) {
    places_ = std::make_shared<Places>();
    places_->device = &device_;
  }
  auto [found, is_new] = places_->all.try_emplace({device, bytes});
  if (is_new) {
    try {
      found->second.pinned = device_.pinned().take(bytes);
    } catch (...) {
      places_->all.erase(found);
      throw;
    }
  }
  return found->second;
}

Staging::Place* Staging::find(const void* device, std::size_t bytes) {
  if (places_ == nullptr) return nullptr;
  auto found = places_->all.find({device, bytes});
  return found != places_->all.end() ? &found->second : nullptr;
}

void Staging::waited() {
  if (places_ == nullptr) return;
  for (auto& [key, place] : places_->all) place.is_uploaded = false;
}

nb::object Staging::share() {
  if (places_ == nullptr) return nb::none();
  if (!owner_.is_valid())
    owner_ = nb::capsule(new std::shared_ptr<Places>(places_), [](void* held) noexcept {
      delete static_cast<std::shared_ptr<Places>*>(held);
    });
  return owner_;
}

void Staging::after_call() {
  if (owner_.is_valid() && Py_REFCNT(owner_.ptr()) > 1) places_ = nullptr;  // a host function has kept a view of it
  owner_.reset();
}

Timings::~Timings() {
  if (all.empty()) return;
  try {
    ContextScope scope(*device);
    for (const Timing& timing : all)
      for (cuda::Event event : {timing.begin, timing.end})
        if (event != nullptr) device->cu.cuEventDestroy_v2(event);
  } catch (const Error&) {
    // the context is lost
  }
}

Run::Run(LoadedProgram& program, StreamRef stream_)
    : device(program.device), stream(std::move(stream_)), staging(device), program_(program) {}

// Host memory is freed when queued work is done.
Run::~Run() {
  if (slots_.data == nullptr && !staging.is_used()) return;
  try {
    ContextScope scope(device);
    const MomentRef end = device.record_or_wait(stream);
    staging.end_at(end);
    device.pinned().give(slots_, end);
  } catch (const Error&) {
    // the context is lost
  }
}

bool Run::run(Entry entry, void** packed, HostedRun* hosted, ReleasedGil& gil, RunControl& control) {
  hosted_ = hosted;
  outer_ = std::exchange(innermost, this);
  InnermostScope scope(&control, &way_out_, true);
  const bool through =
      hosted != nullptr ? hosted->run(entry, packed, gil, control, nullptr) : enter(entry, packed, way_out_);
  innermost = outer_;
  return through;
}

void Run::leave() {
  if (hosted_ != nullptr) hosted_->leave();
  _longjmp(way_out_, 1);
}

void Run::wait() {
  stream->wait();
  used_ = 0;
  staging.waited();
}

// Allocates pinned space for a value in flight, valid until the stream has passed.
char* Run::slot(std::size_t bytes) {
  const std::size_t size = (bytes + 15) / 16 * 16;
  if (slots_.data == nullptr) slots_ = device.pinned().take(kSlots);
  if (used_ + size > kSlots) wait();
  char* place = static_cast<char*>(slots_.data) + used_;
  used_ += size;
  return place;
}

void Run::launch(std::int64_t kernel, std::int64_t blocks, std::int64_t threads, std::int64_t shared,
                 void** parameters) {
  if (timings == nullptr) return program_.launch(kernel, blocks, threads, shared, parameters, *stream);
  Timing& timing = timings->all.emplace_back(Timing{kernel, nullptr, nullptr});
  device.check(device.cu.cuEventCreate(&timing.begin, cuda::kEventDefault), "making an event");
  device.check(device.cu.cuEventCreate(&timing.end, cuda::kEventDefault), "making an event");
  device.check(device.cu.cuEventRecord(timing.begin, stream->handle), "marking the begin of a launch");
  program_.launch(kernel, blocks, threads, shared, parameters, *stream);
  device.check(device.cu.cuEventRecord(timing.end, stream->handle), "marking the end of a launch");
}

void Run::copy(cuda::Address to, cuda::Address from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  device.check(device.cu.cuMemcpyDtoDAsync_v2(to, from, bytes, stream->handle), "copying on the device");
}

void Run::read(void* to, cuda::Address from, std::size_t bytes) {
  if (bytes == 0) return;
  const bool is_small = bytes <= kSlots / 4;
  void* target = is_small ? slot(bytes) : to;
  device.check(device.cu.cuMemcpyDtoHAsync_v2(target, from, bytes, stream->handle), "copying to the host");
  wait();
  if (is_small) std::memcpy(to, target, bytes);
}

void Run::write(cuda::Address to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const bool is_small = bytes <= kSlots / 4;
  if (is_small) from = std::memcpy(slot(bytes), from, bytes);
  device.check(device.cu.cuMemcpyHtoDAsync_v2(to, from, bytes, stream->handle), "copying to the device");
  if (!is_small) wait();
}

void* Run::to_host(const void* at, std::size_t bytes, bool copy) {
  Staging::Place* place = &staging.place(at, bytes);
  if (copy && bytes != 0) {
    device.check(device.cu.cuMemcpyDtoHAsync_v2(place->pinned.data, address(at), bytes, stream->handle),
                 "copying to the host");
    wait();
  } else if (place->is_uploaded) {
    wait();  // the memory to be overwritten may still be in flight
  }
  return place->pinned.data;
}

void Run::from_host(cuda::Address to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Staging::Place* place = staging.find(reinterpret_cast<const void*>(to), bytes);
  const bool is_ours = place != nullptr && place->pinned.data == from;
  if (is_ours) place->is_uploaded = true;
  device.check(device.cu.cuMemcpyHtoDAsync_v2(to, from, bytes, stream->handle), "copying to the device");
  if (!is_ours) wait();  // foreign memory may be freed at any time
}

}  // namespace stablexla::gpu

namespace gpu = stablexla::gpu;

extern "C" void stablexla_gpu_launch(std::int64_t kernel, std::int64_t blocks, std::int64_t threads,
                                     std::int64_t shared_bytes, void** parameters) {
  gpu::or_leave([=](gpu::Run& run) { run.launch(kernel, blocks, threads, shared_bytes, parameters); });
}

extern "C" void stablexla_gpu_copy(void* to, const void* from, std::int64_t bytes) {
  gpu::or_leave(
      [=](gpu::Run& run) { run.copy(gpu::address(to), gpu::address(from), static_cast<std::size_t>(bytes)); });
}

extern "C" void stablexla_gpu_read(void* to_host, const void* from_device, std::int64_t bytes) {
  gpu::or_leave([=](gpu::Run& run) { run.read(to_host, gpu::address(from_device), static_cast<std::size_t>(bytes)); });
}

extern "C" void stablexla_gpu_write(void* to_device, const void* from_host, std::int64_t bytes) {
  gpu::or_leave([=](gpu::Run& run) { run.write(gpu::address(to_device), from_host, static_cast<std::size_t>(bytes)); });
}

extern "C" void* stablexla_gpu_to_host(const void* device, std::int64_t bytes, std::int64_t copy) {
  void* host = nullptr;
  gpu::or_leave([&](gpu::Run& run) { host = run.to_host(device, static_cast<std::size_t>(bytes), copy != 0); });
  return host;
}

extern "C" void stablexla_gpu_from_host(void* device, const void* host, std::int64_t bytes) {
  gpu::or_leave([=](gpu::Run& run) { run.from_host(gpu::address(device), host, static_cast<std::size_t>(bytes)); });
}
