#include "relocations.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "elf_abi.h"

namespace stablexla {

using namespace elf;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("machine code: " + what); }
[[noreturn]] void refuse_reach() { refuse("an address that is out of reach"); }

template <typename T>
void write(char* place, std::int64_t value) {
  if (value < std::int64_t(std::numeric_limits<T>::min()) || value > std::int64_t(std::numeric_limits<T>::max()))
    refuse_reach();
  const T narrow = static_cast<T>(value);
  std::memcpy(place, &narrow, sizeof narrow);
}

void relocate_x86_64(std::uint32_t type, char* place, std::int64_t relative, std::uint64_t value) {
  switch (type) {
    case R_X86_64_64: return write<std::int64_t>(place, static_cast<std::int64_t>(value));
    case R_X86_64_PC64: return write<std::int64_t>(place, relative);
    case R_X86_64_PC32:
    case R_X86_64_PLT32: return write<std::int32_t>(place, relative);
    case R_X86_64_32: return write<std::uint32_t>(place, static_cast<std::int64_t>(value));
    case R_X86_64_32S: return write<std::int32_t>(place, static_cast<std::int64_t>(value));
    default: refuse("a relocation that is not known: " + std::to_string(type));
  }
}

// Sets `bits` bits of an instruction from bit `at` on.
void put_field(char* place, unsigned at, unsigned bits, std::uint64_t value) {
  std::uint32_t instruction;
  std::memcpy(&instruction, place, sizeof instruction);
  const std::uint32_t mask = (std::uint32_t(1) << bits) - 1;
  instruction = (instruction & ~(mask << at)) | ((static_cast<std::uint32_t>(value) & mask) << at);
  std::memcpy(place, &instruction, sizeof instruction);
}

// A signed offset in units of 1 << shift bytes.
void put_offset(char* place, unsigned at, unsigned bits, unsigned shift, std::int64_t offset) {
  const std::int64_t limit = std::int64_t(1) << (bits + shift - 1);
  if (offset < -limit || offset >= limit) refuse_reach();
  if ((offset & ((1 << shift) - 1)) != 0) refuse("an address that is not aligned");
  put_field(place, at, bits, static_cast<std::uint64_t>(offset >> shift));
}

// ADR and ADRP: the lower two bits of the offset, in bytes or pages, stand apart from the others.
void put_adr(char* place, std::int64_t offset) {
  if (offset < -(1 << 20) || offset >= 1 << 20) refuse_reach();
  put_field(place, 29, 2, static_cast<std::uint64_t>(offset));
  put_field(place, 5, 19, static_cast<std::uint64_t>(offset >> 2));
}

// The offset within a page, of an access of 1 << shift bytes.
void put_page_offset(char* place, unsigned shift, std::uint64_t value) {
  if ((value & ((1 << shift) - 1)) != 0) refuse("an address that is not aligned");
  put_field(place, 10, 12, (value & 0xFFF) >> shift);
}

std::int64_t pages_between(std::uint64_t from, std::uint64_t to) {
  return static_cast<std::int64_t>(to >> 12) - static_cast<std::int64_t>(from >> 12);
}

// The names and ranges are those of Arm's "ELF for the Arm 64-bit Architecture", section 5.7.
void relocate_aarch64(std::uint32_t type, char* place, std::uint64_t address, std::int64_t relative,
                      std::uint64_t value) {
  switch (type) {
    case R_AARCH64_ABS64: return write<std::int64_t>(place, static_cast<std::int64_t>(value));
    case R_AARCH64_ABS32: return write<std::uint32_t>(place, static_cast<std::int64_t>(value));
    case R_AARCH64_PREL64: return write<std::int64_t>(place, relative);
    case R_AARCH64_PREL32: return write<std::int32_t>(place, relative);
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return put_offset(place, 0, 26, 2, relative);
    case R_AARCH64_CONDBR19:
    case R_AARCH64_LD_PREL_LO19: return put_offset(place, 5, 19, 2, relative);
    case R_AARCH64_TSTBR14: return put_offset(place, 5, 14, 2, relative);
    case R_AARCH64_ADR_PREL_LO21: return put_adr(place, relative);
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_PREL_PG_HI21_NC:
    case R_AARCH64_ADR_GOT_PAGE: return put_adr(place, pages_between(address, value));
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return put_page_offset(place, 0, value);
    case R_AARCH64_LDST16_ABS_LO12_NC: return put_page_offset(place, 1, value);
    case R_AARCH64_LDST32_ABS_LO12_NC: return put_page_offset(place, 2, value);
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC: return put_page_offset(place, 3, value);
    case R_AARCH64_LDST128_ABS_LO12_NC: return put_page_offset(place, 4, value);
    default: refuse("a relocation that is not known: " + std::to_string(type));
  }
}

}  // namespace

Detour detour_of(unsigned machine, std::uint32_t type) {
  if (machine != EM_AARCH64) return Detour::kNone;
  if (type == R_AARCH64_CALL26 || type == R_AARCH64_JUMP26) return Detour::kVeneer;
  return type == R_AARCH64_ADR_GOT_PAGE || type == R_AARCH64_LD64_GOT_LO12_NC ? Detour::kAddress : Detour::kNone;
}

bool reaches(std::uint64_t address, std::uint64_t target) {
  const auto offset = static_cast<std::int64_t>(target - address);
  return offset >= -(std::int64_t(1) << 27) && offset < std::int64_t(1) << 27;
}

void write_veneer(char* place, std::uint64_t target) {
  const std::uint32_t code[] = {0x58000050, 0xD61F0200};  // ldr x16, #8; br x16
  std::memcpy(place, code, sizeof code);
  std::memcpy(place + sizeof code, &target, sizeof target);
}

void relocate(unsigned machine, std::uint32_t type, char* place, std::size_t room, std::uint64_t address,
              std::uint64_t value) {
  const bool is_arm = machine == EM_AARCH64;
  const bool wide = is_arm ? type == R_AARCH64_ABS64 || type == R_AARCH64_PREL64
                           : type == R_X86_64_64 || type == R_X86_64_PC64;
  if (room < (wide ? 8u : 4u)) refuse("an address beyond the end of a section");
  const auto relative = static_cast<std::int64_t>(value - address);
  if (is_arm) return relocate_aarch64(type, place, address, relative, value);
  relocate_x86_64(type, place, relative, value);
}

}  // namespace stablexla
