// A module after decoding: instructions with a function that computes each, and places of operands in a warp's registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "text.h"

namespace simulator {

struct Warp;
struct Instruction;

constexpr int kLanes = 32;
using Mask = std::uint32_t;
constexpr Mask kAll = ~Mask(0);

enum class Type : std::uint8_t {
  kNone, kPred, kB8, kB16, kB32, kB64, kB128, kU8, kU16, kU32, kU64, kS8, kS16, kS32, kS64,
  kF16, kBF16, kF16x2, kBF16x2, kF32, kF64, kTF32, kF32x2, kE4M3x2, kE5M2x2, kE4M3, kE5M2,
};
int bytes_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);

// Where 32 lanes of a value lie, one after another. A predicate is a mask of 32 bits.
struct Slot {
  std::uint32_t offset = 0;
  std::uint8_t bank = 0;   // 0: the warp's registers; 1: the module's constants; 2: nothing, what is written is lost
  std::uint8_t bytes = 0;  // of a lane; 0: a predicate
};

using Run = void (*)(Warp&, const Instruction&, Mask);
using Compare = Mask (*)(Warp&, const Instruction&);

enum class Kind : std::uint8_t {
  kPlain,     // computes, and goes on
  kAligned,   // waits until all the warp's threads have come
  kMembers,   // waits until the threads of a mask, the operand `c`, have come
  kBranch, kTable, kCall, kReturn, kExit,
  kBarrier,   // of a block
};

struct Instruction {
  Run run = nullptr;
  Compare compare = nullptr;  // of setp and set
  Kind kind = Kind::kPlain;
  Space space = Space::kGeneric;
  Type type = Type::kNone, from = Type::kNone;
  bool guarded = false, guard_negated = false;
  Slot guard;
  Slot d, a, b, c;
  std::vector<Slot> more;     // parts of vectors
  std::vector<Slot> sources;  // parts of vectors that are read
  std::int64_t offset = 0;    // of an address
  std::int64_t value = 0;     // what an instruction needs besides: a mode, a count
  int target = -1;            // of a branch or a call
  std::vector<int> targets;
  int line = 0;
  std::uint8_t flags = 0;
};

// A register that the machine sets: its name and where the function reads it.
struct Special {
  std::string name;
  Slot slot;
};

struct Function {
  std::string name;
  bool entry = false;
  int begin = 0;  // the first instruction
  std::vector<Special> specials;
  std::vector<std::int64_t> parameter_offsets, parameter_bytes;
  std::int64_t parameters = 0;       // bytes
  std::int64_t static_shared = 0, local = 0;
  std::int64_t dynamic_alignment = 16;
  std::uint32_t registers = 0;       // bytes of a warp
  std::int64_t threads[3] = {0, 0, 0};
  bool threads_required = false;
  int shared_grain = 16, global_grain = 16;  // the narrowest access
};

struct Module {
  int version = 0;
  std::string target;
  int chip = 0;
  std::string source;
  std::vector<Instruction> code;
  std::vector<std::string> lines;  // of the source, for messages
  std::vector<std::uint8_t> constants;
  std::map<std::string, Function> functions;
  std::vector<Variable> globals;                  // .global and .const
  std::map<std::string, std::uint64_t> addresses;  // of these
  std::uint64_t memory = 0;                        // where they lie, 0 when there are none
};

// Places memory for a module's variables and decodes its functions. `allocate` gives addresses on the device.
struct Loader {
  virtual std::uint64_t allocate(std::int64_t bytes) = 0;
  virtual void write(std::uint64_t address, const std::vector<std::uint8_t>& bytes) = 0;
  virtual ~Loader() = default;
};
Module load(const std::string& text, int chip, Loader& loader);

}  // namespace simulator
