// A compiled program as a Python callable: arguments in, machine code with the GIL released, arrays out.
// Unusual arguments are converted, and wrong ones refused, in arguments.py.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "array_spec.h"
#include "device_program.h"
#include "guard.h"
#include "host_table.h"
#include "memory_pool.h"
#include "stopping.h"

namespace stablexla {

namespace nb = nanobind;

// Initializes numpy's C interface; call it once, at import. Throws nb::python_error.
void import_numpy();

class Arena;
class DeviceThreads;
class HostedRun;
class ReleasedGil;
struct Device;

class CompiledFunction : public DeviceProgram, public HostTable {
 public:
  CompiledFunction(std::string name, std::uintptr_t entry, std::vector<ArraySpec> parameters,
                   std::vector<ArraySpec> results, std::size_t arena_bytes, nb::sequence constants,
                   std::map<int, int> aliases, bool flush_denormals, nb::object keep_alive, nb::object host,
                   nb::sequence collectives, int num_devices, std::map<std::int64_t, std::string> places,
                   const std::string& guard);
  ~CompiledFunction();
  CompiledFunction(const CompiledFunction&) = delete;

  // Returns one array for each result, new ones unless the caller donates: then a result may reuse the memory of its
  // argument in `aliases`. Throws nb::python_error.
  std::vector<nb::object> execute(PyObject* const* arguments, std::size_t count, bool donate = false) const;
  // The results of this process's devices, which run at once. `seconds` limits how long a device waits for others, less
  // than 0 for ever. Throws nb::python_error.
  std::vector<std::vector<nb::object>> execute_replicated(const std::vector<nb::object>& arguments, bool donate,
                                                          double seconds) const;
  // Whether it runs without Python: without host calls, not under guard, and in this process alone.
  bool is_plain() const { return !hosted_ && guarded_end == GuardedEnd::kNone && where().is_whole(); }
  PlainCode plain_code() const;
  std::string repr() const;
  // The bytes of each constant, as the program sees them.
  std::vector<nb::object> constants() const;

  std::string name;
  std::uintptr_t entry;
  std::vector<ArraySpec> parameters, results;
  std::size_t arena_bytes;
  std::map<int, int> aliases;
  bool flush_denormals;
  nb::object keep_alive;
  nb::object collective_configs;  // as they were given
  std::map<std::int64_t, std::string> places;  // where it can be stopped; none in programs that are too short for that
  GuardedEnd guarded_end;                      // kNone where its runs are not under guard

 private:
  struct DeviceCall;

  std::vector<DeviceCall> prepare_all(const std::vector<nb::object>& arguments, const Placement& where,
                                      bool donate) const;
  void prepare(DeviceCall& call, int device, std::size_t place, std::vector<PyObject*>& arrays, bool donate) const;
  void place(DeviceCall& call) const;
  void run_device(DeviceCall& call, Device& device, ReleasedGil& gil, RunControl& control) const;
  bool run_all(DeviceRun& run, RunKey key, std::vector<DeviceCall>& calls, DeviceThreads& threads, double seconds,
               RunEnd& end) const;
  void raise_stopped(DeviceRun& run, std::vector<DeviceCall>& calls, RunEnd end) const;
  void take_constants(nb::sequence constants);
  void release_constants();
  void count_fresh_bytes();
  // Throws where there is not the memory for a run on so many devices; small runs do not ask.
  void check_room(std::size_t devices, bool donate) const {
    if (fresh_bytes_ > unasked_bytes.load(std::memory_order_relaxed) / devices) ask_for_room(devices, donate);
  }
  void ask_for_room(std::size_t devices, bool donate) const;
  void* argument(std::size_t i, PyObject* given, void* scalar, std::vector<nb::object>& kept, PyObject** array,
                 int device = -1) const;
  nb::object new_result(std::size_t i, void** data) const;
  nb::object donated_result(std::size_t i, void** data, const std::vector<PyObject*>& arrays,
                            std::size_t first = 0) const;
  void run(void** data, std::size_t count, HostedRun* hosted, Guard* guard = nullptr) const;
  void run_special(void** data, std::size_t count, Arena& arena, PyObject* const* arguments,
                   const std::vector<nb::object>& kept, const std::vector<nb::object>& made) const;
  std::shared_ptr<Guard> guarded(void** data) const;
  void raise_outside(const Outside& found) const;

  std::vector<Block> constants_;
  std::vector<std::size_t> constant_bytes_;
  std::vector<nb::object> constant_arrays_;  // those that are not copied
  std::size_t own_staying_bytes_ = 0;
  std::size_t fresh_bytes_ = 0, donated_bytes_ = 0;  // blocks for a call's results and arena; of those that can alias
  bool hosted_ = false;
  bool is_special_ = false;  // not on the fast path
};

nb::object guard_owner(const std::shared_ptr<Guard>& guard);  // keeps its arrays; None where there is none
nb::object make_array_of_dlpack(nb::handle value);
nb::object make_dlpack_of_array(nb::handle array, int type_code);

}  // namespace stablexla
