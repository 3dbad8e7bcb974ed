// Who touched which memory last: finds two threads that touch the same place without an order between them.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace simulator {

// Strong: volatile, relaxed, acquire, release: may meet others of its kind and atomic operations.
enum class Access : std::uint8_t { kRead, kWrite, kAtomic, kReadOnly, kStrongRead, kStrongWrite };
inline bool reads(Access a) { return a == Access::kRead || a == Access::kReadOnly || a == Access::kStrongRead; }
inline bool reads_first(Access a) { return reads(a) || a == Access::kAtomic; }
inline bool strong(Access a) { return a >= Access::kStrongRead || a == Access::kAtomic; }
const char* name_of(Access a);

struct Touch {
  std::uint32_t block = 0, stamp = 0;
  std::uint16_t thread = 0;
  std::uint8_t kind = 0;  // 0 nobody, 1 plainly, 2 by an atomic operation, 3 many threads (reads only)
};

struct Cell {
  std::uint32_t launch = 0;  // of another launch: as if nobody had
  std::int32_t readers = -1;
  Touch write, read;
  std::uint16_t in_flight = 0;   // copies that have not arrived
  std::uint16_t being_read = 0;  // products that have not been waited for
};

// Of many readers of shared memory, the last one of each warp.
struct Readers {
  std::uint32_t stamp = 0;
  std::uint8_t lane = 255;  // 254: many
};

// What was touched of one piece of memory, in cells of the narrowest access.
struct Shadow {
  std::vector<Cell> cells;
  int shift = 0;
  bool shared = false;
  std::vector<Readers> pool;  // [set][warp]
  std::vector<std::int32_t> unused;

  void reset(std::size_t bytes, int grain);
  // Says what is wrong, "" when nothing is.
  void touch(Warp& w, int lane, std::size_t at, int bytes, Access kind);

 private:
  void read(Warp& w, int lane, Cell& cell, std::size_t at, Access kind);
  void write(Warp& w, int lane, Cell& cell, std::size_t at, Access kind);
  bool ordered(Warp& w, int lane, const Touch& before) const;
  void add_reader(Warp& w, int lane, Cell& cell, bool strongly);
  [[noreturn]] void race(Warp& w, int lane, const Touch& before, std::size_t at, const char* did, const char* does) const;
};

struct SharedShadow : Shadow {};

// What is switched on, from SIMULATOR_CHECKS: memory, races, initialised.
struct Checks {
  bool races = true, initialised = true, global_initialised = true;
};
Checks& checks();

// After a strong access to an address outside of shared memory: what others released there is known once this thread has
// a fence behind it (or at once, `acquire`), and what it did before its last fence (or until now, `release`) is released.
void meet(Warp& w, std::uint64_t address, bool acquire, bool release);
void fence_all(Warp& w);

// The host's memory behind an address, after all checks.
std::uint8_t* reach(Warp& w, int lane, Space space, std::uint64_t address, int bytes, Access kind);
std::uint8_t* reach_shared(Warp& w, int lane, std::uint64_t address, int bytes, Access kind);

}  // namespace simulator
