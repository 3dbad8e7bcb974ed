// Relocations of ELF for x86-64 and AArch64: the bytes of a place that refers to a symbol. Those of both processors are
// known everywhere, as nothing of this runs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stablexla {

// What a relocation needs of the loader, besides the symbol's address.
enum class Detour {
  kNone,
  kVeneer,   // a call of short reach: a jump of any reach stands in for functions that are too far away
  kAddress,  // a load of the symbol's address from a table (the global offset table)
};

// `machine` is ELF's number of the processor, `type` the relocation's number there.
Detour detour_of(unsigned machine, std::uint32_t type);

// Whether a call at `address` reaches `target`.
bool reaches(std::uint64_t address, std::uint64_t target);

// Bytes of a veneer, and how one is written that jumps to `target`.
constexpr std::size_t kVeneerBytes = 16;
void write_veneer(char* place, std::uint64_t target);

// Applies a relocation to the bytes at `place`, which will run at `address`, in the `room` left of a section. `value` is
// the symbol's address plus the addend; for Detour::kAddress that of the table's entry.
// Throws std::runtime_error for types that are not known, and for values that do not fit.
void relocate(unsigned machine, std::uint32_t type, char* place, std::size_t room, std::uint64_t address,
              std::uint64_t value);

}  // namespace stablexla
