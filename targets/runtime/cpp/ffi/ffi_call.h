// A call site of a handler of XLA's typed foreign function interface, prepared once for all executions.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ffi_abi.h"

namespace stablexla {

namespace nb = nanobind;

// Attributes in the ABI's layout, with the memory that they point into.
class FfiAttributes {
 public:
  explicit FfiAttributes(nb::sequence rows);  // (name, kind, element type, size, value), sorted by name
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

class FfiCall {
 public:
  // Addresses of the handlers for the four stages, 0 where there is none; (element type, extents) of each array.
  // Throws std::runtime_error with what the handler says when it refuses to be instantiated.
  FfiCall(std::string name, std::array<std::uintptr_t, 4> stages, nb::sequence inputs, nb::sequence outputs,
          nb::sequence attributes);
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
  static std::vector<Form> forms(nb::sequence rows);
  std::string run(ffi::Stage stage, ffi::Context& context, void** outputs, void** inputs) const;

  std::array<ffi::Handler*, 4> stages_;
  std::vector<Form> inputs_, outputs_;
  FfiAttributes attributes_;
  ffi::Context* instance_;  // holds the state that the handler made when it was instantiated
};

}  // namespace stablexla
