#include "object_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <stdexcept>

// From the unwinder (libgcc), which every C++ process has.
extern "C" void __register_frame(void* begin);
extern "C" void __deregister_frame(void* begin);

namespace stablexla {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("machine code: " + what); }

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

// ELF parser, memory-safe for arbitrary contents: reads are bounds-checked.
class Object {
 public:
  explicit Object(std::string_view bytes) : bytes_(bytes) {
    const auto header = at<Elf64_Ehdr>(0);
    const bool is_elf = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
                        header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_REL;
    if (!is_elf) refuse("no ELF object file");
    if (header.e_machine != kMachine) refuse("made for another kind of processor");
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      sections.push_back(at<Elf64_Shdr>(add(header.e_shoff, i * sizeof(Elf64_Shdr))));
      if (sections.back().sh_type == SHT_SYMTAB) symbols_ = sections.back();
    }
    for (std::size_t i = 0; i < symbols_.sh_size / sizeof(Elf64_Sym); ++i)
      symbols.push_back(at<Elf64_Sym>(add(symbols_.sh_offset, i * sizeof(Elf64_Sym))));
    if (!symbols.empty()) names_ = contents(section(symbols_.sh_link));
  }

  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;

  const Elf64_Shdr& section(std::size_t index) const {
    if (index >= sections.size()) refuse("a section that is not there");
    return sections[index];
  }

  std::string_view contents(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    if (add(section.sh_offset, section.sh_size) > bytes_.size()) refuse("it ends too early");
    return bytes_.substr(section.sh_offset, section.sh_size);
  }

  std::string name(const Elf64_Sym& symbol) const {
    if (symbol.st_name >= names_.size()) refuse("a name that is not there");
    const std::string_view rest = names_.substr(symbol.st_name), name = rest.substr(0, rest.find('\0'));
    for (char c : name)
      if (c <= ' ' || c > '~') refuse("a name of other characters than a symbol has");
    return std::string(name);
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
  std::string_view bytes_, names_;
  Elf64_Shdr symbols_{};
};

bool is_allocated(const Elf64_Shdr& section) { return (section.sh_flags & SHF_ALLOC) != 0; }
bool is_frames(const Elf64_Shdr& section) { return section.sh_type == SHT_X86_64_UNWIND; }

// Placement of the sections needed at run time, by permission: code, read-only data, writable data.
struct Layout {
  explicit Layout(const Object& object) : offsets(object.sections.size(), 0) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (int kind = 0; kind < 3; ++kind) {
      begin[kind] = size;
      for (std::size_t i = 0; i < offsets.size(); ++i)
        if (is_allocated(object.sections[i]) && kind_of(object.sections[i]) == kind) place(object.sections[i], i, page);
      size = round_up(size, page);
      end[kind] = size;
    }
    if (size == 0) refuse("there is nothing in it");
  }

  std::vector<std::size_t> offsets;
  std::size_t size = 0, begin[3], end[3];

 private:
  static int kind_of(const Elf64_Shdr& section) {
    if (section.sh_flags & SHF_WRITE) return 2;
    return section.sh_flags & SHF_EXECINSTR ? 0 : 1;
  }

  static std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

  void place(const Elf64_Shdr& section, std::size_t index, std::size_t page) {
    const std::size_t alignment = section.sh_addralign == 0 ? 1 : section.sh_addralign;
    if ((alignment & (alignment - 1)) != 0 || alignment > page) refuse("an alignment that cannot be");
    if (section.sh_flags & SHF_TLS) refuse("variables of threads are not known here");
    if (section.sh_size > std::size_t(1) << 40) refuse("a section that is too big");
    offsets[index] = round_up(size, alignment);
    size = offsets[index] + section.sh_size + (is_frames(section) ? 4 : 0);  // a zero terminates .eh_frame
  }
};

template <typename T>
void write(char* place, std::int64_t value) {
  if (value < std::int64_t(std::numeric_limits<T>::min()) || value > std::int64_t(std::numeric_limits<T>::max()))
    refuse("an address that is out of reach");
  const T narrow = static_cast<T>(value);
  std::memcpy(place, &narrow, sizeof narrow);
}

// Applies a relocation; `value` is the symbol's address plus the addend.
void relocate(char* place, std::size_t room, std::uint32_t type, std::uint64_t value) {
  const auto relative = static_cast<std::int64_t>(value - reinterpret_cast<std::uintptr_t>(place));
  const bool wide = type == R_X86_64_64 || type == R_X86_64_PC64;
  if (room < (wide ? 8u : 4u)) refuse("an address beyond the end of a section");
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

std::vector<std::uint64_t> addresses_of(const Object& object, const Layout& layout, const char* memory,
                                        const Symbols& symbols) {
  std::vector<std::uint64_t> addresses;
  for (const Elf64_Sym& symbol : object.symbols) {
    std::uint64_t address = 0;
    if (symbol.st_shndx == SHN_ABS) {
      address = symbol.st_value;
    } else if (symbol.st_shndx == SHN_UNDEF) {
      const std::string name = object.name(symbol);
      const auto found = symbols.find(name);
      if (!name.empty() && found == symbols.end()) refuse("there is no function " + name);
      if (!name.empty()) address = found->second;
    } else {
      const Elf64_Shdr& section = object.section(symbol.st_shndx);
      if (symbol.st_value > section.sh_size) refuse("a symbol outside of its section");
      if (is_allocated(section))
        address = reinterpret_cast<std::uintptr_t>(memory) + layout.offsets[symbol.st_shndx] + symbol.st_value;
    }
    addresses.push_back(address);
  }
  return addresses;
}

void relocate_all(const Object& object, const Layout& layout, char* memory,
                  const std::vector<std::uint64_t>& addresses) {
  for (const Elf64_Shdr& table : object.sections) {
    if (table.sh_type == SHT_REL) refuse("relocations without addends are not known here");
    if (table.sh_type != SHT_RELA || !is_allocated(object.section(table.sh_info))) continue;
    const Elf64_Shdr& target = object.section(table.sh_info);
    for (std::size_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
      const auto entry = object.at<Elf64_Rela>(Object::add(table.sh_offset, i * sizeof(Elf64_Rela)));
      const std::size_t symbol = ELF64_R_SYM(entry.r_info);
      if (entry.r_offset >= target.sh_size || symbol >= addresses.size()) refuse("a relocation of something else");
      relocate(memory + layout.offsets[table.sh_info] + entry.r_offset, target.sh_size - entry.r_offset,
               ELF64_R_TYPE(entry.r_info), addresses[symbol] + static_cast<std::uint64_t>(entry.r_addend));
    }
  }
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
  for (const Elf64_Sym& symbol : object.symbols)
    if (symbol.st_shndx == SHN_UNDEF && !object.name(symbol).empty()) names.push_back(object.name(symbol));
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
      if (!is_allocated(object.sections[i]) || object.sections[i].sh_size == 0) continue;
      if (!contents.empty()) std::memcpy(memory_ + layout.offsets[i], contents.data(), contents.size());
      if (is_frames(object.sections[i])) frames = memory_ + layout.offsets[i];
    }
    const std::vector<std::uint64_t> addresses = addresses_of(object, layout, memory_, symbols);
    relocate_all(object, layout, memory_, addresses);
    const int protections[] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int kind = 0; kind < 3; ++kind)
      if (layout.end[kind] > layout.begin[kind] &&
          mprotect(memory_ + layout.begin[kind], layout.end[kind] - layout.begin[kind], protections[kind]) != 0)
        refuse("the system does not let it run");
    for (std::size_t i = 0; i < addresses.size(); ++i)
      if (object.symbols[i].st_shndx != SHN_UNDEF && ELF64_ST_BIND(object.symbols[i].st_info) == STB_GLOBAL)
        defined_[object.name(object.symbols[i])] = addresses[i];
    if (frames != nullptr) __register_frame(frames_ = frames);
    std::lock_guard<std::mutex> lock(loaded().mutex);
    loaded().sizes[reinterpret_cast<std::uintptr_t>(memory_)] = size_;
  } catch (...) {
    unmap();
    throw;
  }
}

ObjectCode::~ObjectCode() { unmap(); }

void ObjectCode::unmap() {
  if (frames_ != nullptr) __deregister_frame(frames_);
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
