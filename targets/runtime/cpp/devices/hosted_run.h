// A run of a program with host callbacks: Python functions that it calls, and keys for random numbers.
#pragma once

#include <setjmp.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "called_run.h"
#include "compiled_function.h"
#include "released_gil.h"

extern "C" {
// Calls the host function of that number; pointers to arrays. Where the function raises, the program is left here.
__attribute__((visibility("default"))) void stablexla_call_host(std::int64_t number, void** outputs, void** inputs);
// The next key of the running program: different at each call, repeatable after a seed.
__attribute__((visibility("default"))) std::uint64_t stablexla_next_random_key();
}

namespace stablexla {

// Memory of the arrays that host functions get. They may keep views of it.
class SharedMemory {
 public:
  virtual nb::object share() = 0;  // the memory's owner from now on; None when there is none
  virtual void after_call() {}     // after a host function's call, with the GIL

 protected:
  ~SharedMemory() = default;
};

// The arena of one run's temporaries, which outlives the run while views of it exist.
class Arena final : public SharedMemory {
 public:
  Arena(std::size_t bytes, const std::string& program) {
    if (bytes == 0) return;
    block_ = acquire_block(bytes);
    if (block_.data == nullptr) cold_path("raise_out_of_memory", kAvailableMemory)(program + ": temporaries", bytes);
  }
  ~Arena() {
    if (block_.data != nullptr) release_block(block_);
  }
  Arena(const Arena&) = delete;
  void* data() const { return block_.data != nullptr ? block_.data : nothing; }
  nb::object share() override;

 private:
  Block block_;
  nb::object owner_;
};

class HostedRun {
 public:
  // `program` is the table's owner; `arguments` and `results` are the other memory that functions' views may refer to.
  HostedRun(const HostTable& table, SharedMemory& memory, nb::object program, nb::object arguments, nb::object results);
  HostedRun(const HostedRun&) = delete;

  // Without the GIL; false when the program was left early. `device` is null where the program is for one.
  bool run(Entry entry, void** packed, ReleasedGil& gil, RunControl& control, Guard* guard, Device* device = nullptr);
  Raised& raised() { return raised_; }  // a host function's exception
  std::string raised_text();            // the same as text, without the GIL

  bool call(std::size_t number, void** outputs, void** inputs) noexcept;
  [[noreturn]] void leave() { _longjmp(way_out_, 1); }
  std::uint64_t next_random_key() const;

 private:
  bool call_ffi(const FfiCall& call, void** outputs, void** inputs) noexcept;
  nb::object views(const std::vector<ArraySpec>& specs, void** data, const nb::object& owner, bool writable);
  nb::object owner();

  const HostTable& table_;
  SharedMemory& memory_;
  nb::object program_, arguments_, results_;
  ReleasedGil* gil_ = nullptr;
  HostedRun* outer_ = nullptr;
  Raised raised_;
  jmp_buf way_out_;
};

}  // namespace stablexla
