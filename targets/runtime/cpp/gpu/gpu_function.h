// A program compiled for GPUs as a Python callable: results are on the host or on a device, as the arguments are.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiled_function.h"
#include "gpu_array.h"
#include "gpu_run.h"

namespace stablexla::gpu {

class Function : public HostTable {
 public:
  using Kernels = std::vector<std::pair<std::string, std::int64_t>>;

  Function(std::string name, std::uintptr_t entry, std::vector<ArraySpec> parameters, std::vector<ArraySpec> results,
           std::size_t arena_bytes, nb::sequence constants, std::map<int, int> aliases, Kernels kernels,
           nb::object image, std::string chip, nb::object keep_alive, nb::object host, bool flush_denormals,
           std::map<std::int64_t, std::string> places);
  ~Function();

  // Returns one array for each result: on the device when any argument is, else on the host. Throws nb::python_error
  // and Error.
  std::vector<nb::object> execute(PyObject* const* arguments, std::size_t count, bool donate = false,
                                  Timings* timings = nullptr);
  // Runs it once; returns the time of each launch on the device in us, in order.
  nb::list launch_times(nb::sequence arguments);
  std::string repr() const;
  nb::list constant_bytes() const;  // of each constant, read-only

  std::string name;
  std::uintptr_t entry;
  std::vector<ArraySpec> parameters, results;
  std::size_t arena_bytes;
  std::map<int, int> aliases;
  Kernels kernels;
  nb::object image;  // image(chip) -> bytes, PTX or a cubin for the chip; with "" always PTX
  std::string chip;
  nb::object keep_alive;
  bool flush_denormals;
  std::map<std::int64_t, std::string> places;  // where it can be stopped

 private:
  struct Argument;
  struct Call;

  void find_device(Call& call, PyObject* const* given) const;
  void take_argument(Call& call, std::size_t i, PyObject* given) const;
  void take_device_array(Call& call, std::size_t i, PyObject* given) const;
  void take_foreign(Call& call, std::size_t i, PyObject* given) const;
  void take_donated(Call& call) const;
  void lay_out(Call& call) const;
  void run(Call& call, Run& run, HostedRun* hosted, ReleasedGil& gil, RunControl& control) const;
  void copy_arguments(Call& call) const;
  void copy_results(Call& call) const;
  void finish(Call& call) const;
  std::string place(std::size_t i) const;
  LoadedProgram& load(Device& device);
  std::string image_bytes(const std::string& made_for) const;

  std::vector<nb::object> constants_;  // numpy arrays of bytes
  std::map<Device*, std::unique_ptr<LoadedProgram>> loaded_;  // under the GIL
};

}  // namespace stablexla::gpu
