// Machine code from an object file: placed in memory, bound to the functions that it calls, ready to run.
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

// The names of the functions that an object file calls but does not have. Throws std::runtime_error for no such file.
std::vector<std::string> undefined_symbols(std::string_view object);

// The address of a function of this library or of what the process has loaded; 0 when there is none.
std::uintptr_t find_symbol(const std::string& name);

// The code lives as long as this. What it calls is found in `symbols`.
class ObjectCode {
 public:
  // Throws std::runtime_error for bytes that are no object file for this machine, and for a symbol without address.
  ObjectCode(std::string_view object, const Symbols& symbols);
  ~ObjectCode();
  ObjectCode(const ObjectCode&) = delete;

  std::uintptr_t address(const std::string& name) const;  // 0 when there is no such function
  std::size_t size() const { return size_; }

 private:
  void unmap();

  char* memory_ = nullptr;
  std::size_t size_ = 0;
  void* frames_ = nullptr;  // how to unwind through the code, when it says so
  Symbols defined_;
};

}  // namespace stablexla
