// A call site of a handler of XLA's typed foreign function interface, prepared once for all executions.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ffi_abi.h"
#include "json.h"

namespace stablexla {

// Attributes in the ABI's layout, with the memory that they point into.
class FfiAttributes {
 public:
  // Rows (name, kind, element type, size, value), sorted by name; a value is hexadecimal, or rows of a dictionary.
  explicit FfiAttributes(const Json& rows);
  FfiAttributes(const FfiAttributes&) = delete;

  ffi::Attributes view;

 private:
  std::deque<std::string> bytes_;
  std::deque<ffi::ByteSpan> spans_;
  std::deque<ffi::Scalar> scalars_;
  std::deque<ffi::Array> arrays_;
  std::vector<std::unique_ptr<FfiAttributes>> nested_;
  std::vector<int> types_;
  std::vector<ffi::ByteSpan*> names_;
  std::vector<void*> values_;
};

// Registers a type of handlers' state objects: the address of its id (read, or assigned), and its destructor.
void register_ffi_type(const std::string& name, std::uintptr_t id, std::uintptr_t info);

using FfiStages = std::array<ffi::Handler*, 4>;  // handlers for the four stages, null where there is none

class FfiCall {
 public:
  // `form` has the "attributes", and (element type, extents) of each of the "inputs" and "outputs". Throws
  // std::runtime_error with what the handler says when it refuses to be instantiated.
  FfiCall(std::string name, FfiStages stages, const Json& form);
  ~FfiCall();
  FfiCall(const FfiCall&) = delete;

  // Thread-safe, without the GIL. Returns the error's message, or "".
  std::string execute(void** outputs, void** inputs) const noexcept;

  const std::string name;

 private:
  struct Form {
    int dtype;
    std::vector<std::int64_t> extents;
  };
  static std::vector<Form> forms(const Json& rows);
  std::string run(ffi::Stage stage, ffi::Context& context, void** outputs, void** inputs) const;

  FfiStages stages_;
  std::vector<Form> inputs_, outputs_;
  FfiAttributes attributes_;
  ffi::Context* instance_;  // holds the state that the handler made when it was instantiated
};

}  // namespace stablexla
