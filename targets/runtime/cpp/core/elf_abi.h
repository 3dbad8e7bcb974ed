// Relocatable object files in ELF, as far as the loader reads them: the System V ABI, and its supplements for x86-64 and
// AArch64. macOS has no <elf.h>.
#pragma once

#include <cstdint>

namespace stablexla::elf {

struct Header {
  unsigned char ident[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, phoff, shoff;
  std::uint32_t flags;
  std::uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};

struct Section {
  std::uint32_t name, type;
  std::uint64_t flags, addr, offset, size;
  std::uint32_t link, info;
  std::uint64_t addralign, entsize;
};

struct Symbol {
  std::uint32_t name;
  unsigned char info, other;
  std::uint16_t shndx;
  std::uint64_t value, size;

  bool is_global() const { return info >> 4 == 1; }
};

struct Relocation {
  std::uint64_t offset, info;
  std::int64_t addend;

  std::uint32_t symbol() const { return static_cast<std::uint32_t>(info >> 32); }
  std::uint32_t type() const { return static_cast<std::uint32_t>(info); }
};

static_assert(sizeof(Header) == 64 && sizeof(Section) == 64 && sizeof(Symbol) == 24 && sizeof(Relocation) == 24);

// 64 bits, little-endian, version 1
constexpr unsigned char kIdent[] = {0x7F, 'E', 'L', 'F', 2, 1};

enum : std::uint16_t { ET_REL = 1, EM_X86_64 = 62, EM_AARCH64 = 183 };
enum : std::uint16_t { SHN_UNDEF = 0, SHN_ABS = 0xFFF1 };
enum : std::uint32_t { SHT_PROGBITS = 1, SHT_SYMTAB = 2, SHT_RELA = 4, SHT_NOBITS = 8, SHT_REL = 9 };
enum : std::uint32_t { SHT_X86_64_UNWIND = 0x70000001 };
enum : std::uint64_t { SHF_WRITE = 1, SHF_ALLOC = 2, SHF_EXECINSTR = 4, SHF_TLS = 0x400 };

enum : std::uint32_t {
  R_X86_64_64 = 1,
  R_X86_64_PC32 = 2,
  R_X86_64_PLT32 = 4,
  R_X86_64_32 = 10,
  R_X86_64_32S = 11,
  R_X86_64_PC64 = 24,
};

enum : std::uint32_t {
  R_AARCH64_ABS64 = 257,
  R_AARCH64_ABS32 = 258,
  R_AARCH64_PREL64 = 260,
  R_AARCH64_PREL32 = 261,
  R_AARCH64_LD_PREL_LO19 = 273,
  R_AARCH64_ADR_PREL_LO21 = 274,
  R_AARCH64_ADR_PREL_PG_HI21 = 275,
  R_AARCH64_ADR_PREL_PG_HI21_NC = 276,
  R_AARCH64_ADD_ABS_LO12_NC = 277,
  R_AARCH64_LDST8_ABS_LO12_NC = 278,
  R_AARCH64_TSTBR14 = 279,
  R_AARCH64_CONDBR19 = 280,
  R_AARCH64_JUMP26 = 282,
  R_AARCH64_CALL26 = 283,
  R_AARCH64_LDST16_ABS_LO12_NC = 284,
  R_AARCH64_LDST32_ABS_LO12_NC = 285,
  R_AARCH64_LDST64_ABS_LO12_NC = 286,
  R_AARCH64_LDST128_ABS_LO12_NC = 299,
  R_AARCH64_ADR_GOT_PAGE = 311,
  R_AARCH64_LD64_GOT_LO12_NC = 312,
};

}  // namespace stablexla::elf
