#include "object_code.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <stdexcept>

#include "elf_abi.h"
#include "relocations.h"
#include "system.h"

namespace stablexla {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("machine code: " + what); }

#if defined(__x86_64__)
constexpr unsigned kMachine = elf::EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = elf::EM_AARCH64;
#endif

// ELF parser, memory-safe for arbitrary contents: reads are bounds-checked.
class Object {
 public:
  explicit Object(std::string_view bytes) : bytes_(bytes) {
    const auto header = at<elf::Header>(0);
    if (std::memcmp(header.ident, elf::kIdent, sizeof elf::kIdent) != 0 || header.type != elf::ET_REL)
      refuse("no ELF object file");
    if (header.machine != kMachine) refuse("made for another kind of processor");
    for (std::size_t i = 0; i < header.shnum; ++i) {
      sections.push_back(at<elf::Section>(add(header.shoff, i * sizeof(elf::Section))));
      if (sections.back().type == elf::SHT_SYMTAB) symbols_ = sections.back();
    }
    for (std::size_t i = 0; i < symbols_.size / sizeof(elf::Symbol); ++i)
      symbols.push_back(at<elf::Symbol>(add(symbols_.offset, i * sizeof(elf::Symbol))));
    if (!symbols.empty()) names_ = contents(section(symbols_.link));
    if (header.shstrndx != elf::SHN_UNDEF) section_names_ = contents(section(header.shstrndx));
  }

  std::vector<elf::Section> sections;
  std::vector<elf::Symbol> symbols;

  const elf::Section& section(std::size_t index) const {
    if (index >= sections.size()) refuse("a section that is not there");
    return sections[index];
  }

  std::string_view contents(const elf::Section& section) const {
    if (section.type == elf::SHT_NOBITS) return {};
    if (add(section.offset, section.size) > bytes_.size()) refuse("it ends too early");
    return bytes_.substr(section.offset, section.size);
  }

  std::string name(const elf::Symbol& symbol) const {
    if (symbol.name >= names_.size()) refuse("a name that is not there");
    const std::string_view rest = names_.substr(symbol.name), name = rest.substr(0, rest.find('\0'));
    for (char c : name)
      if (c <= ' ' || c > '~') refuse("a name of other characters than a symbol has");
    return std::string(name);
  }

  // .eh_frame, which on x86-64 has a type of its own.
  bool is_frames(const elf::Section& section) const {
    if (section.type == elf::SHT_X86_64_UNWIND) return true;
    if (section.type != elf::SHT_PROGBITS || section.name >= section_names_.size()) return false;
    const std::string_view rest = section_names_.substr(section.name);
    return rest.substr(0, rest.find('\0')) == ".eh_frame";
  }

  template <typename T>
  T at(std::size_t offset) const {
    T value;
    if (add(offset, sizeof value) > bytes_.size()) refuse("it ends too early");
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  static std::size_t add(std::size_t a, std::size_t b) {
    std::size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) refuse("a place that cannot be");
    return sum;
  }

 private:
  std::string_view bytes_, names_, section_names_;
  elf::Section symbols_{};
};

bool is_allocated(const elf::Section& section) { return (section.flags & elf::SHF_ALLOC) != 0; }

// Calls `each` with the relocations of the sections needed at run time: (section's number, relocation).
template <typename Each>
void for_relocations(const Object& object, Each each) {
  for (const elf::Section& table : object.sections) {
    if (table.type == elf::SHT_REL) refuse("relocations without addends are not known here");
    if (table.type != elf::SHT_RELA || !is_allocated(object.section(table.info))) continue;
    for (std::size_t i = 0; i < table.size / sizeof(elf::Relocation); ++i) {
      const auto entry = object.at<elf::Relocation>(Object::add(table.offset, i * sizeof(elf::Relocation)));
      if (entry.offset >= object.section(table.info).size || entry.symbol() >= object.symbols.size())
        refuse("a relocation of something else");
      each(table.info, entry);
    }
  }
}

// Placement of the sections needed at run time, by permission: code, read-only data, writable data. Veneers are behind
// the code, and the table of addresses before read-only data, where the object file's relocations ask for them.
struct Layout {
  explicit Layout(const Object& object) : offsets(object.sections.size(), 0) {
    for_relocations(object, [&](std::size_t, const elf::Relocation& entry) {
      const Detour detour = detour_of(kMachine, entry.type());
      const std::uint32_t symbol = entry.symbol();
      if (detour == Detour::kVeneer && object.symbols[symbol].shndx == elf::SHN_UNDEF) veneers[symbol] = 0;
      if (detour == Detour::kAddress) entries[symbol] = 0;
    });
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (int kind = 0; kind < 3; ++kind) {
      begin[kind] = size;
      if (kind == 1) reserve(entries, sizeof(std::uint64_t));
      for (std::size_t i = 0; i < offsets.size(); ++i)
        if (is_allocated(object.sections[i]) && kind_of(object.sections[i]) == kind) place(object, i, page);
      if (kind == 0) reserve(veneers, kVeneerBytes);
      size = round_up(size, page);
      end[kind] = size;
    }
    if (size == 0) refuse("there is nothing in it");
  }

  std::vector<std::size_t> offsets;
  std::map<std::uint32_t, std::size_t> veneers, entries;  // offsets, by the symbol's number
  std::size_t size = 0, begin[3], end[3];

 private:
  static int kind_of(const elf::Section& section) {
    if (section.flags & elf::SHF_WRITE) return 2;
    return section.flags & elf::SHF_EXECINSTR ? 0 : 1;
  }

  static std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

  void reserve(std::map<std::uint32_t, std::size_t>& places, std::size_t bytes) {
    size = round_up(size, bytes);
    for (auto& [symbol, offset] : places) {
      offset = size;
      size += bytes;
    }
  }

  void place(const Object& object, std::size_t index, std::size_t page) {
    const elf::Section& section = object.sections[index];
    const std::size_t alignment = section.addralign == 0 ? 1 : section.addralign;
    if ((alignment & (alignment - 1)) != 0 || alignment > page) refuse("an alignment that cannot be");
    if (section.flags & elf::SHF_TLS) refuse("variables of threads are not known here");
    if (section.size > std::size_t(1) << 40) refuse("a section that is too big");
    offsets[index] = round_up(size, alignment);
    size = offsets[index] + section.size + (object.is_frames(section) ? 4 : 0);  // a zero terminates .eh_frame
  }
};

std::vector<std::uint64_t> addresses_of(const Object& object, const Layout& layout, const char* memory,
                                        const Symbols& symbols) {
  std::vector<std::uint64_t> addresses;
  for (const elf::Symbol& symbol : object.symbols) {
    std::uint64_t address = 0;
    if (symbol.shndx == elf::SHN_ABS) {
      address = symbol.value;
    } else if (symbol.shndx == elf::SHN_UNDEF) {
      const std::string name = object.name(symbol);
      const auto found = symbols.find(name);
      if (!name.empty() && found == symbols.end()) refuse("there is no function " + name);
      if (!name.empty()) address = found->second;
    } else {
      const elf::Section& section = object.section(symbol.shndx);
      if (symbol.value > section.size) refuse("a symbol outside of its section");
      if (is_allocated(section))
        address = reinterpret_cast<std::uintptr_t>(memory) + layout.offsets[symbol.shndx] + symbol.value;
    }
    addresses.push_back(address);
  }
  return addresses;
}

void relocate_all(const Object& object, const Layout& layout, char* memory,
                  const std::vector<std::uint64_t>& addresses) {
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  for (auto [symbol, offset] : layout.veneers) write_veneer(memory + offset, addresses[symbol]);
  for (auto [symbol, offset] : layout.entries) std::memcpy(memory + offset, &addresses[symbol], sizeof(std::uint64_t));
  for_relocations(object, [&](std::size_t section, const elf::Relocation& entry) {
    const std::uint32_t symbol = entry.symbol();
    const std::uint32_t type = entry.type();
    const std::size_t offset = layout.offsets[section] + entry.offset;
    std::uint64_t value = addresses[symbol] + static_cast<std::uint64_t>(entry.addend);
    const Detour detour = detour_of(kMachine, type);
    if (detour != Detour::kNone && entry.addend != 0) refuse("an addend that cannot be");
    if (detour == Detour::kAddress) value = start + layout.entries.at(symbol);
    if (detour == Detour::kVeneer && !reaches(start + offset, value)) {
      const auto veneer = layout.veneers.find(symbol);
      if (veneer != layout.veneers.end()) value = start + veneer->second;
    }
    relocate(kMachine, type, memory + offset, object.section(section).size - entry.offset, start + offset, value);
  });
}

// The ranges of all loaded code, by their starts. Leaked on purpose: programs may be freed last.
struct LoadedRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> sizes;
};

LoadedRanges& loaded() {
  static LoadedRanges* ranges = [] {
    auto* made = new LoadedRanges;
    // a child of fork must not inherit the lock held by another thread of its parent
    pthread_atfork([] { loaded().mutex.lock(); }, [] { loaded().mutex.unlock(); }, [] { loaded().mutex.unlock(); });
    return made;
  }();
  return *ranges;
}

}  // namespace

std::vector<std::string> undefined_symbols(std::string_view bytes) {
  const Object object(bytes);
  std::vector<std::string> names;
  for (const elf::Symbol& symbol : object.symbols)
    if (symbol.shndx == elf::SHN_UNDEF && !object.name(symbol).empty()) names.push_back(object.name(symbol));
  return names;
}

std::uintptr_t find_symbol(const std::string& name) {
  // Symbols of this library are not global in the process: Python loads it with local scope.
  Dl_info info;
  void* found = nullptr;
  if (dladdr(reinterpret_cast<void*>(&find_symbol), &info) != 0) {
    if (void* self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)) {
      found = dlsym(self, name.c_str());  // and of the libraries that it needs, libm and libgcc among them
      dlclose(self);
    }
  }
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, name.c_str());
  return reinterpret_cast<std::uintptr_t>(found);
}

ObjectCode::ObjectCode(std::string_view bytes, const Symbols& symbols) {
  const Object object(bytes);
  const Layout layout(object);
  void* mapped = mmap(nullptr, layout.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) refuse("no memory for it");
  memory_ = static_cast<char*>(mapped);
  size_ = layout.size;
  try {
    void* frames = nullptr;
    for (std::size_t i = 0; i < object.sections.size(); ++i) {
      const std::string_view contents = object.contents(object.sections[i]);
      if (!is_allocated(object.sections[i]) || object.sections[i].size == 0) continue;
      if (!contents.empty()) std::memcpy(memory_ + layout.offsets[i], contents.data(), contents.size());
      if (object.is_frames(object.sections[i])) frames = memory_ + layout.offsets[i];
    }
    const std::vector<std::uint64_t> addresses = addresses_of(object, layout, memory_, symbols);
    relocate_all(object, layout, memory_, addresses);
    flush_instructions(memory_ + layout.begin[0], memory_ + layout.end[0]);
    const int protections[] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int kind = 0; kind < 3; ++kind)
      if (layout.end[kind] > layout.begin[kind] &&
          mprotect(memory_ + layout.begin[kind], layout.end[kind] - layout.begin[kind], protections[kind]) != 0)
        refuse("the system does not let it run: " + std::string(std::strerror(errno)));
    for (std::size_t i = 0; i < addresses.size(); ++i)
      if (object.symbols[i].shndx != elf::SHN_UNDEF && object.symbols[i].is_global())
        defined_[object.name(object.symbols[i])] = addresses[i];
    if (frames != nullptr) register_frames(frames_ = frames);
    std::lock_guard<std::mutex> lock(loaded().mutex);
    loaded().sizes[reinterpret_cast<std::uintptr_t>(memory_)] = size_;
  } catch (...) {
    unmap();
    throw;
  }
}

ObjectCode::~ObjectCode() { unmap(); }

void ObjectCode::unmap() {
  if (frames_ != nullptr) deregister_frames(frames_);
  if (memory_ == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(loaded().mutex);
    loaded().sizes.erase(reinterpret_cast<std::uintptr_t>(memory_));
  }
  munmap(memory_, size_);
  memory_ = nullptr;
}

std::uintptr_t ObjectCode::address(const std::string& name) const {
  const auto found = defined_.find(name);
  return found == defined_.end() ? 0 : found->second;
}

bool is_machine_code(std::uintptr_t address) {
  std::lock_guard<std::mutex> lock(loaded().mutex);
  const auto next = loaded().sizes.upper_bound(address);
  if (next == loaded().sizes.begin()) return false;
  const auto found = std::prev(next);
  return address - found->first < found->second;
}

}  // namespace stablexla
