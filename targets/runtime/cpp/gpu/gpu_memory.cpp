#include "gpu_memory.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "gpu_pinned.h"

namespace stablexla::gpu {
namespace {

// Rounds up: kernels may load a whole vector at an array's end.
std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string with_unit(std::size_t bytes) {
  if (bytes < (std::size_t(1) << 20)) return std::to_string(bytes) + " bytes";
  return std::to_string(bytes >> 20) + " MiB";
}

struct Kept {
  MomentRef until;
  nb::object object;
};

// After an error no work runs any more.
bool is_pending(const Moment& moment) {
  try {
    ContextScope scope(moment.stream->device);
    return !moment.is_past();
  } catch (const Error&) {
    return false;
  }
}

std::vector<Kept>& kept() {
  static auto* all = new std::vector<Kept>;  // leaked on purpose: Python may be finalized by then
  return *all;
}

}  // namespace

Memory::Memory(Device& device) : device_(device) {
  if (device.attribute(cuda::kMemoryPoolsSupported) == 0) return;
  device.check(device.cu.cuDeviceGetDefaultMemPool(&pool_, device.ordinal), "asking for its memory pool");
  std::uint64_t all = ~std::uint64_t(0);
  device.check(device.cu.cuMemPoolSetAttribute(pool_, cuda::kPoolReleaseThreshold, &all), "setting up its memory pool");
}

void Memory::count(std::size_t bytes) {
  const std::size_t now = in_use_.fetch_add(bytes) + bytes;
  blocks_.fetch_add(1);
  std::size_t peak = peak_.load();
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

cuda::Address Memory::take(std::size_t bytes, const Stream& stream, const std::string& purpose) {
  if (bytes == 0) return kNothing;
  cuda::Address address = 0;
  cuda::Result result = cuda::kSuccess;
  if (pool_ != nullptr)
    result = device_.cu.cuMemAllocAsync(&address, rounded(bytes), stream.handle);
  else
    address = take_listed(rounded(bytes), stream, &result);
  if (result == cuda::kOutOfMemory) {
    const Stats now = stats();
    throw OutOfMemory("no memory on GPU " + std::to_string(device_.number) + " for " + purpose + ": " +
                      with_unit(bytes) + " wanted; " + with_unit(now.in_use) + " are in use by this process, " +
                      with_unit(now.held) + " held for reuse, " + with_unit(now.free) + " free of " +
                      with_unit(now.total));
  }
  device_.check(result, "asking for memory");
  count(bytes);
  return address;
}

// Best fit: the smallest free block that is large enough and not far too large, or a new one.
cuda::Address Memory::take_listed(std::size_t size, const Stream& stream, cuda::Result* result) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto place = free_.lower_bound(size); place != free_.end() && place->first == size; ++place) {
      const Free found = std::move(place->second);
      free_.erase(place);
      listed_ -= size;
      if (found.since->stream->handle != stream.handle) stream.wait_for(found.since->event);
      return found.address;
    }
  }
  cuda::Address address = 0;
  *result = device_.cu.cuMemAlloc_v2(&address, size);
  return address;
}

void Memory::give(cuda::Address address, std::size_t bytes, const StreamRef& stream) noexcept {
  if (bytes == 0) return;
  in_use_.fetch_sub(bytes);
  blocks_.fetch_sub(1);
  if (is_forked()) return;
  try {
    if (pool_ != nullptr) {
      device_.check(device_.cu.cuMemFreeAsync(address, stream->handle), "giving memory back");
      return;
    }
    MomentRef now = device_.record(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    free_.emplace(rounded(bytes), Free{address, std::move(now)});
    listed_ += rounded(bytes);
  } catch (const Error&) {
    // the context is lost, and its memory with it
  }
}

void Memory::release() {
  device_.check(device_.cu.cuCtxSynchronize(), "waiting for all programs");
  if (pool_ != nullptr) {
    device_.check(device_.cu.cuMemPoolTrimTo(pool_, 0), "giving memory back");
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [size, block] : free_) device_.check(device_.cu.cuMemFree_v2(block.address), "giving memory back");
  free_.clear();
  listed_ = 0;
}

Memory::Stats Memory::stats() const {
  Stats stats{in_use_.load(), blocks_.load(), peak_.load(), listed_.load(), 0, 0};
  if (device_.cu.cuMemGetInfo_v2(&stats.free, &stats.total) != cuda::kSuccess) stats.total = device_.total_bytes;
  std::uint64_t reserved = 0, used = 0;
  if (pool_ != nullptr && device_.cu.cuMemPoolGetAttribute(pool_, cuda::kPoolReservedMemCurrent, &reserved) == 0 &&
      device_.cu.cuMemPoolGetAttribute(pool_, cuda::kPoolUsedMemCurrent, &used) == 0 && reserved > used)
    stats.held = reserved - used;
  return stats;
}

Block::~Block() {
  if (is_forked()) {
    owner.release();
    return;
  }
  if (owner.is_valid()) {
    // foreign memory is released by the host, when no use here is pending
    for (MomentRef& use : uses) keep_until(std::move(use), owner);
    if (written != nullptr) keep_until(std::move(written), std::move(owner));
    return;
  }
  if (bytes == 0 || device.is_lost()) return;
  try {
    ContextScope scope(device);
    for (const MomentRef& use : uses) home->wait_for(use->event);
    if (is_used_by_others) wait_for_all(device);
    device.memory().give(address, bytes, home);
  } catch (const Error&) {
    // the context is lost, and its memory with it
  }
}

void Block::note_use(const MomentRef& moment) {
  if (moment->stream->handle == home->handle && !owner.is_valid()) return;
  for (MomentRef& use : uses)
    if (use->stream->handle == moment->stream->handle) {
      use = moment;
      return;
    }
  uses.push_back(moment);
}

void Block::note_foreign_use(cuda::Stream stream) {
  if (stream == home->handle && !owner.is_valid()) return;
  if (stream != cuda::kLegacyStream && stream != cuda::kPerThreadStream) {
    is_used_by_others = true;
    return;
  }
  ContextScope scope(device);
  note_use(device.record(std::make_shared<Stream>(device, stream, false)));
}

void wait_for_all(Device& device) {
  std::optional<ReleasedGil> released;
  if (PyGILState_Check()) released.emplace();
  device.check(device.cu.cuCtxSynchronize(), "waiting for all programs");
}

void keep_until(MomentRef moment, nb::object object) { kept().push_back({std::move(moment), std::move(object)}); }

void let_go() {
  std::vector<Kept>& all = kept();
  if (all.empty()) return;
  std::vector<nb::object> gone;  // destructors may re-enter
  std::size_t left = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_pending(*all[i].until)) {
      std::swap(all[left++], all[i]);
      continue;
    }
    gone.push_back(std::move(all[i].object));
  }
  all.resize(left);
}

}  // namespace stablexla::gpu
