// Races and accesses outside: see checks.h.
#include "checks.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "device.h"
#include "spaces.h"

namespace simulator {

namespace cuda = stablexla::cuda;

Checks& checks() {
  static Checks all;
  return all;
}

const char* name_of(Access a) {
  const char* names[] = {"reads", "writes", "changes atomically", "reads as constant", "reads", "writes"};
  return names[int(a)];
}

namespace {

std::string hex(std::uint64_t n) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, n);
  return text;
}

// What was seen by strong reads so far is known from now on.
void fence_acquire(Warp& w) {
  Block& b = *w.block;
  for (auto& [other, known] : w.unfenced) {
    if (other == b.number) {
      b.acquire(w.index, known);
      continue;
    }
    auto& mine = b.launch->device->acquired[b.number][other];
    mine.resize(std::max(mine.size(), known.size()));
    for (std::size_t n = 0; n < known.size(); ++n) mine[n] = std::max(mine[n], known[n]);
  }
  w.unfenced.clear();
}

}  // namespace

void Shadow::reset(std::size_t bytes, int grain) {
  shift = __builtin_ctz(unsigned(grain));
  cells.assign((bytes >> shift) + 2, Cell{});
  pool.clear();
  unused.clear();
}

void Shadow::race(Warp& w, int lane, const Touch& before, std::size_t at, const char* did, const char* does) const {
  std::string who = before.kind == 3 ? "other threads" : "thread " + std::to_string(before.thread);
  if (!shared && before.kind != 3) who += " of block " + std::to_string(before.block);
  fault(cuda::kLaunchFailed, "race in " + std::string(shared ? "shared memory" : "global memory") + " at byte " +
                                 std::to_string((at << shift) - std::size_t(shared ? 0 : 0)) + ": " + where(w, lane) + " " +
                                 does + " what " + who + " " + did + ", with nothing that orders them");
}

bool Shadow::ordered(Warp& w, int lane, const Touch& before) const {
  Block& b = *w.block;
  int self = w.thread(lane);
  if (shared || before.block == b.number) {
    if (before.kind == 3) return before.stamp <= b.whole_barrier;
    return b.knows(w.index, before.thread, before.stamp, self);
  }
  auto mine = b.launch->device->acquired.find(b.number);
  if (mine == b.launch->device->acquired.end()) return false;
  auto other = mine->second.find(before.block);
  if (other == mine->second.end()) return false;
  return before.kind != 3 && before.stamp <= other->second[before.thread / kLanes];
}

void Shadow::add_reader(Warp& w, int lane, Cell& cell, bool strongly) {
  Block& b = *w.block;
  auto self = std::uint16_t(w.thread(lane));
  Touch now{b.number, b.stamp, self, std::uint8_t(strongly ? 2 : 1)};
  if (cell.read.kind == 0 || (cell.readers < 0 && cell.read.kind != 3 && ordered(w, lane, cell.read))) {
    cell.read = now;
    return;
  }
  if (!shared) {
    bool same_block = cell.read.block == b.number;
    cell.read = Touch{same_block ? b.number : ~0u, same_block ? b.stamp : ~0u, self, 3};
    return;
  }
  std::size_t warps = b.warps.size();
  auto note = [&](int thread, std::uint32_t stamp) {
    Readers& r = pool[std::size_t(cell.readers) * warps + std::size_t(thread / kLanes)];
    int before = thread - thread % kLanes + (r.lane == 254 ? (thread + 1) % kLanes : r.lane);
    // What came before this read comes before all that is ordered after it.
    if (r.lane != 255 && thread == self && b.knows(w.index, before, r.stamp, self)) r = Readers{};
    bool other = r.lane != 255 && r.lane != thread % kLanes;
    r.lane = std::uint8_t(other ? 254 : thread % kLanes);
    r.stamp = std::max(r.stamp, stamp);
  };
  if (cell.readers < 0) {
    if (unused.empty()) {
      cell.readers = std::int32_t(pool.size() / warps);
      pool.resize(pool.size() + warps);
    } else {
      cell.readers = unused.back();
      unused.pop_back();
      std::fill_n(pool.begin() + std::ptrdiff_t(std::size_t(cell.readers) * warps), warps, Readers{});
    }
    note(cell.read.thread, cell.read.stamp);
  }
  note(self, b.stamp);
  cell.read = now;
}

void Shadow::read(Warp& w, int lane, Cell& cell, std::size_t at, Access kind) {
  if (cell.write.kind) {
    if (kind == Access::kReadOnly) race(w, lane, cell.write, at, "wrote in this launch", "reads as constant (ld.global.nc)");
    bool atomic = strong(kind) && cell.write.kind == 2;
    if (!atomic && !ordered(w, lane, cell.write)) race(w, lane, cell.write, at, "wrote", "reads");
  }
  if (cell.in_flight) {
    fault(cuda::kLaunchFailed, "race: " + where(w, lane) + " reads shared memory into which an asynchronous copy is still under way");
  }
  add_reader(w, lane, cell, strong(kind));
}

void Shadow::write(Warp& w, int lane, Cell& cell, std::size_t at, Access kind) {
  Block& b = *w.block;
  bool atomic = strong(kind);
  const char* does = name_of(kind);
  if (cell.write.kind && !(atomic && cell.write.kind == 2) && !ordered(w, lane, cell.write)) {
    race(w, lane, cell.write, at, "wrote", does);
  }
  if (cell.readers >= 0) {
    std::size_t warps = b.warps.size();
    for (std::size_t other = 0; other < warps; ++other) {
      const Readers& r = pool[std::size_t(cell.readers) * warps + other];
      if (r.lane == 255) continue;
      int thread = int(other) * kLanes + (r.lane == 254 ? (lane + 1) % kLanes : r.lane);
      if (!b.knows(w.index, thread, r.stamp, w.thread(lane))) {
        race(w, lane, Touch{b.number, r.stamp, std::uint16_t(thread), 1}, at, "read", does);
      }
    }
    unused.push_back(cell.readers);
    cell.readers = -1;
  } else if (cell.read.kind && !(atomic && cell.read.kind == 2) && !ordered(w, lane, cell.read)) {
    race(w, lane, cell.read, at, "read", does);
  }
  if (cell.in_flight || cell.being_read) {
    fault(cuda::kLaunchFailed, "race: " + where(w, lane) + " " + does + " shared memory that an asynchronous " +
                                   (cell.in_flight ? "copy still fills" : "product still reads"));
  }
  cell.read = Touch{};
  cell.write = Touch{b.number, b.stamp, std::uint16_t(w.thread(lane)), std::uint8_t(atomic ? 2 : 1)};
}

void Shadow::touch(Warp& w, int lane, std::size_t at, int bytes, Access kind) {
  std::uint32_t launch = w.block->launch->number;
  std::size_t end = (at + std::size_t(bytes) - 1) >> shift;
  for (std::size_t n = at >> shift; n <= end; ++n) {
    Cell& cell = cells[n];
    if (cell.launch != launch) {
      cell = Cell{};
      cell.launch = launch;
    }
    if (reads(kind)) {
      read(w, lane, cell, n, kind);
    } else {
      write(w, lane, cell, n, kind);
    }
  }
}

void meet(Warp& w, std::uint64_t address, bool acquire, bool release) {
  Block& b = *w.block;
  auto& released = b.launch->device->released[address];
  for (auto& [other, known] : released) {
    auto& pending = w.unfenced[other];
    pending.resize(std::max(pending.size(), known.size()));
    for (std::size_t n = 0; n < known.size(); ++n) pending[n] = std::max(pending[n], known[n]);
  }
  if (acquire) fence_acquire(w);
  if (release) w.fenced = b.knowledge(w.index);
  if (!w.fenced.empty()) released[b.number] = w.fenced;
  ++b.stamp;
}

void fence_all(Warp& w) {
  fence_acquire(w);
  w.fenced = w.block->knowledge(w.index);
  ++w.block->stamp;
}

std::uint8_t* reach_shared(Warp& w, int lane, std::uint64_t address, int bytes, Access kind) {
  Block& b = *w.block;
  auto size = std::uint64_t(b.shared.size());
  if (address < std::uint64_t(kReservedShared) || address > size || std::uint64_t(bytes) > size - address) {
    fault(cuda::kIllegalAddress, where(w, lane) + " " + name_of(kind) + " " + std::to_string(bytes) +
                                     " bytes of shared memory at " + std::to_string(std::int64_t(address) - kReservedShared) +
                                     "; the block has " + std::to_string(size - std::uint64_t(kReservedShared)));
  }
  if (address % std::uint64_t(bytes)) {
    fault(cuda::kMisalignedAddress, where(w, lane) + " " + name_of(kind) + " " + std::to_string(bytes) +
                                        " bytes of shared memory at " + std::to_string(address) + ", not aligned");
  }
  Shadow& shadow = *b.shadow;
  if (checks().races && checks().initialised && reads_first(kind)) {
    for (std::size_t n = address >> shadow.shift; n <= (address + std::uint64_t(bytes) - 1) >> shadow.shift; ++n) {
      if (shadow.cells[n].write.kind == 0 && shadow.cells[n].in_flight == 0) {
        fault(cuda::kLaunchFailed, where(w, lane) + " reads shared memory at " +
                                       std::to_string((n << shadow.shift) - std::size_t(kReservedShared)) +
                                       " that nobody has written");
      }
    }
  }
  if (checks().races) shadow.touch(w, lane, address, bytes, kind);
  return b.shared.data() + address;
}

namespace {

// Whether a read finds nothing: of a word of four bytes one that was written is enough, as LLVM reads whole words for fewer
// bytes, and leaves the others out afterwards.
bool finds_nothing(const std::uint8_t* valid, int bytes) {
  int word = bytes < 4 ? 1 : 4;
  for (int n = 0; n < bytes; n += word) {
    if (!std::memchr(valid + n, 1, std::size_t(word))) return true;
  }
  return false;
}

std::uint8_t* reach_global(Warp& w, int lane, std::uint64_t address, int bytes, Access kind) {
  Device& device = *w.block->launch->device;
  Allocation* a = device.memory.find(address);
  std::uint64_t at = a ? address - a->base : 0;
  if (!a || !a->live || at > a->bytes || std::uint64_t(bytes) > a->bytes - at) {
    std::string what = where(w, lane) + " " + name_of(kind) + " " + std::to_string(bytes) + " bytes at " + hex(address);
    if (a) {
      what += ", " + std::to_string(at) + " bytes after the begin of an allocation of " + std::to_string(a->bytes) + " bytes";
      if (!a->live) what += " that was given back";
    } else {
      what += ", which is no memory of the device";
    }
    fault(cuda::kIllegalAddress, what);
  }
  if (address % std::uint64_t(bytes)) {
    fault(cuda::kMisalignedAddress, where(w, lane) + " " + name_of(kind) + " " + std::to_string(bytes) + " bytes at " +
                                        hex(address) + ", not aligned");
  }
  std::uint8_t* valid = a->valid.data() + at;
  if (!reads_first(kind)) {
    std::memset(valid, 1, std::size_t(bytes));
  } else if (checks().global_initialised && finds_nothing(valid, bytes)) {
    fault(cuda::kLaunchFailed, where(w, lane) + " reads " + std::to_string(bytes) + " bytes of global memory at byte " +
                                   std::to_string(at) + " of an allocation of " + std::to_string(a->bytes) +
                                   " that nobody has written");
  }
  if (checks().races) {
    int grain = w.block->launch->function->global_grain;
    if (a->shadow.cells.empty() || a->grain != grain) {
      a->grain = grain;
      a->shadow.reset(a->bytes, grain);
    }
    a->shadow.touch(w, lane, at, bytes, kind);
  }
  return a->data + at;
}

}  // namespace

std::uint8_t* reach(Warp& w, int lane, Space space, std::uint64_t address, int bytes, Access kind) {
  if (space == Space::kGeneric) {
    std::uint64_t window = address / kWindow * kWindow;
    space = window == kSharedWindow  ? Space::kShared
            : window == kLocalWindow ? Space::kLocal
            : window == kParamWindow ? Space::kParam : Space::kGlobal;
    if (space != Space::kGlobal) address -= window;
  }
  if (space == Space::kGlobal || space == Space::kConstant) return reach_global(w, lane, address, bytes, kind);
  if (space == Space::kShared) return reach_shared(w, lane, address, bytes, kind);
  Block& b = *w.block;
  bool local = space == Space::kLocal;
  auto size = std::uint64_t(local ? b.local_bytes : std::int64_t(b.launch->parameters.size()));
  if (address > size || std::uint64_t(bytes) > size - address) {
    fault(cuda::kIllegalAddress, where(w, lane) + " " + name_of(kind) + " " + std::to_string(bytes) + " bytes at " +
                                     std::to_string(address) + " of " + std::to_string(size) +
                                     (local ? " bytes of local memory" : " bytes of parameters"));
  }
  if (address % std::uint64_t(bytes)) fault(cuda::kMisalignedAddress, where(w, lane) + " " + name_of(kind) + " memory that is not aligned");
  if (local) return b.local.data() + std::uint64_t(w.thread(lane)) * size + address;
  if (!reads(kind)) fault(cuda::kIllegalAddress, where(w, lane) + " writes a parameter");
  return b.launch->parameters.data() + address;
}

}  // namespace simulator
