// Loader of object files: places sections in memory, resolves symbols, applies relocations.
// It needs no linker and no LLVM, so that a saved program starts at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stablexla {

using Symbols = std::map<std::string, std::uintptr_t>;

// Returns the undefined symbols of an object file. Throws std::runtime_error for other bytes.
std::vector<std::string> undefined_symbols(std::string_view object);

// Returns the address of a function of this library or of those the process has loaded; 0 when there is none.
std::uintptr_t find_symbol(const std::string& name);

// Whether code that was loaded lies at an address. A signal handler may ask, in any thread that is not loading.
bool is_machine_code(std::uintptr_t address);

// The code lives as long as this. Its undefined symbols are resolved by `symbols`.
class ObjectCode {
 public:
  // Throws std::runtime_error for bytes that are no object file for this machine, and for an unresolved symbol.
  ObjectCode(std::string_view object, const Symbols& symbols);
  ~ObjectCode();
  ObjectCode(const ObjectCode&) = delete;

  std::uintptr_t address(const std::string& name) const;  // 0 when there is no such function
  std::size_t size() const { return size_; }

 private:
  void unmap();

  char* memory_ = nullptr;
  std::size_t size_ = 0;
  void* frames_ = nullptr;  // unwind tables (.eh_frame), if any
  Symbols defined_;
};

}  // namespace stablexla
