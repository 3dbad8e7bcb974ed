// What runs: warps of 32 lanes, their registers and groups of lanes that are together, and blocks with shared memory.
#pragma once

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "program.h"

namespace simulator {

struct Block;
struct Launch;
struct SharedShadow;
struct AsyncCopies;
struct WarpgroupProducts;

// An instruction that breaks a rule while it runs. The code is one of the driver's.
struct Fault : std::runtime_error {
  int code;
  Fault(int c, const std::string& what) : std::runtime_error(what), code(c) {}
};

struct Group {
  int pc = 0;
  Mask mask = 0;
  bool parked = false;  // waits for other lanes of the warp
  int barrier = -1;     // waits for a block's barrier
  std::vector<int> returns;
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  Mask existing = 0, live = 0;
  std::uint8_t* banks[3] = {nullptr, nullptr, nullptr};
  std::vector<std::uint8_t> registers;
  std::vector<Group> groups;
  Mask carry = 0;
  std::uint64_t executed = 0;
  std::uint32_t synchronised = 0;          // the stamp of the last bar.warp.sync or barrier
  std::uint32_t proxy_fence[kLanes] = {};  // stamps of fence.proxy.async
  std::vector<std::uint32_t> fenced;       // what was known at the last fence, of every warp
  std::map<std::uint32_t, std::vector<std::uint32_t>> unfenced;  // what strong reads have seen since: by block
  std::unique_ptr<AsyncCopies> copies;
  std::unique_ptr<WarpgroupProducts> products;
  const Instruction* now = nullptr;
  Mask now_mask = 0;

  Warp();
  Warp(Warp&&) noexcept;
  ~Warp();

  int thread(int lane) const { return index * kLanes + lane; }

  template <class T>
  T* lanes(const Slot& s) {
    return reinterpret_cast<T*>(banks[s.bank] + s.offset);
  }
  Mask& predicate(const Slot& s) { return *reinterpret_cast<Mask*>(banks[s.bank] + s.offset); }

  // The lanes of a source as T: in place, or narrowed into the buffer.
  template <class T>
  const T* read(const Slot& s, T* buffer) {
    if (s.bytes == sizeof(T)) return lanes<T>(s);
    narrowed(s, buffer, sizeof(T));
    return buffer;
  }
  void narrowed(const Slot& s, void* buffer, std::size_t bytes);

  template <class T>
  void write(const Slot& s, const T* values, Mask mask) {
    if (s.bytes != sizeof(T)) return widened(s, values, sizeof(T), mask, std::is_signed<T>::value);
    T* to = lanes<T>(s);
    if (mask == kAll) {
      std::memcpy(to, values, sizeof(T) * kLanes);
    } else {
      for (int l = 0; l < kLanes; ++l) to[l] = mask >> l & 1 ? values[l] : to[l];
    }
  }
  void widened(const Slot& s, const void* values, std::size_t bytes, Mask mask, bool sign);
  void write_predicate(const Slot& s, Mask values, Mask mask) {
    Mask& to = predicate(s);
    to = (to & ~mask) | (values & mask);
  }

  // Runs until nothing can go on or the slice is over. Whether any instruction was run.
  bool run(int slice, std::mt19937& random);
  bool finished() const { return live == 0; }

 private:
  int pick(bool any, std::mt19937& random) const;
  void merge();
  bool gathered(Group& group, const Instruction& i, Mask mask);
  bool control(std::size_t& group, const Instruction& i, Mask mask);
};

struct Barrier {
  int arrived = 0, expected = 0;
  int popc = 0;
  bool all = true, any = false;
  std::vector<int> warps;    // that have come
  std::vector<int> waiting;  // of these, which wait for the others
};

struct Block {
  Launch* launch = nullptr;
  std::uint32_t number = 0;
  std::uint32_t place[3] = {0, 0, 0};
  std::vector<std::uint8_t> shared;
  std::vector<std::uint8_t> local;  // of all threads
  std::int64_t local_bytes = 0;
  std::vector<Warp> warps;
  std::uint32_t stamp = 1;            // grows with each synchronisation
  std::uint32_t whole_barrier = 0;    // the stamp of the last barrier of all threads
  std::vector<std::uint32_t> known;   // [warp][other warp]: up to which stamp it knows what the other did
  Barrier barriers[16];
  std::unique_ptr<SharedShadow> shadow;
  std::mt19937 random;
  std::map<std::uint32_t, std::vector<std::uint32_t>> mbarrier_known;  // address of an mbarrier: what was released there

  Block(Launch& owner, std::uint32_t n);
  ~Block();
  // Goes on for about so many warp instructions. Whether all threads have ended.
  bool run(std::uint64_t budget);
  void arrive(Warp& warp, Group& group, const Instruction& i, Mask mask);
  bool knows(int warp, int thread, std::uint32_t at, int self) const {
    int other = thread / kLanes;
    if (thread == self) return true;
    if (other == warp) return at <= warps[std::size_t(warp)].synchronised;
    return at <= known[std::size_t(warp) * warps.size() + std::size_t(other)];
  }
  void acquire(int warp, const std::vector<std::uint32_t>& what);
  std::vector<std::uint32_t> knowledge(int warp) const;

 private:
  void release(int id);
  [[noreturn]] void stuck();
};

struct Launch {
  const Module* module = nullptr;
  const Function* function = nullptr;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t dynamic_shared = 0;
  std::uint32_t number = 0;  // of all launches
  std::vector<std::uint8_t> parameters;
  struct Device* device = nullptr;
  unsigned seed = 0;
  std::uint64_t limit = 0;  // warp instructions of a block
  std::uint64_t executed = 0;  // instructions of threads

  int threads() const { return int(block[0] * block[1] * block[2]); }
  void run();
};

[[noreturn]] void fault(int code, const std::string& what);
// Where a value lies that a lane of a warp is at now: kernel, block, thread, line.
std::string where(const Warp& warp, int lane);

}  // namespace simulator
