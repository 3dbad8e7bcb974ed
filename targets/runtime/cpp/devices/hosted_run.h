// A run of a program that needs its host: Python functions that it calls, and keys for random numbers.
#pragma once

#include <setjmp.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "compiled_function.h"
#include "released_gil.h"

extern "C" {
// Calls the host's function of that number; pointers to arrays. Where the function raises, the program ends here.
__attribute__((visibility("default"))) void stablexla_call_host(std::int64_t number, void** outputs, void** inputs);
// The next key of the running program: different at each call, repeatable after a seed.
__attribute__((visibility("default"))) std::uint64_t stablexla_next_random_key();
}

namespace stablexla {

// Memory that arrays lie in which functions of the host get. They may keep them.
class SharedMemory {
 public:
  virtual nb::object share() = 0;  // who owns the memory from now on; None when there is none
  virtual void after_call() {}     // of a function that got arrays, with the GIL

 protected:
  ~SharedMemory() = default;
};

// The memory of one run's temporaries, which outlives the run while somebody holds a view of it.
class Arena final : public SharedMemory {
 public:
  explicit Arena(std::size_t bytes) {
    if (bytes == 0) return;
    block_ = acquire_block(bytes);
    if (block_.data == nullptr) cold_path("raise_out_of_memory")("temporaries", bytes);
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

struct Device;

class HostedRun {
 public:
  // `program` is the table's owner; `arguments` and `results` are what else the views that functions get may lie in.
  HostedRun(const HostTable& table, SharedMemory& memory, nb::object program, nb::object arguments, nb::object results);
  ~HostedRun();
  HostedRun(const HostedRun&) = delete;

  // Without the GIL; false when the program was left from within.
  bool run(Entry entry, void** packed, ReleasedGil& gil);
  bool has_raised() const { return type_ != nullptr; }
  void rethrow();            // what a function raised, with the GIL
  std::string raised_text();  // the same as text, without the GIL
  // By the thread that called, while it waits: false when Python's handler of a signal raised.
  bool look_for_signals() noexcept;

  bool call(std::size_t number, void** outputs, void** inputs) noexcept;
  [[noreturn]] void leave() { _longjmp(way_out_, 1); }
  std::uint64_t next_random_key() const;

  Device* device() const { return device_; }  // null where the program is for one
  void set_device(Device* device) { device_ = device; }

 private:
  bool call_ffi(const FfiCall& call, void** outputs, void** inputs) noexcept;
  nb::object views(const std::vector<ArraySpec>& specs, void** data, const nb::object& owner, bool writable);
  nb::object owner();

  const HostTable& table_;
  SharedMemory& memory_;
  nb::object program_, arguments_, results_;
  ReleasedGil* gil_ = nullptr;
  Device* device_ = nullptr;
  HostedRun* outer_ = nullptr;
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
  jmp_buf way_out_;
};

HostedRun* innermost_run();  // of this thread; null if there is none

}  // namespace stablexla
