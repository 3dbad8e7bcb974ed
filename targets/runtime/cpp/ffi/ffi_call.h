// A call of a handler of XLA's typed foreign function interface: what is known of it before it is made.
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

// Attributes as a handler reads them, with the memory that they point into.
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

// A type of objects that handlers keep: where its number is, or is to be written, and how the objects are destroyed.
void register_ffi_type(const std::string& name, std::uintptr_t id, std::uintptr_t info);

class FfiCall {
 public:
  // Addresses of the handlers for the four stages, 0 where there is none; (element type, extents) of each array.
  // Throws std::runtime_error with what the handler says when it refuses to be instantiated.
  FfiCall(std::string name, std::array<std::uintptr_t, 4> stages, nb::sequence inputs, nb::sequence outputs,
          nb::sequence attributes);
  ~FfiCall();
  FfiCall(const FfiCall&) = delete;

  // Any number of threads may call at once, without the GIL. What went wrong, or nothing.
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
  ffi::Context* instance_;  // holds what the handler made when it was instantiated
};

}  // namespace stablexla
