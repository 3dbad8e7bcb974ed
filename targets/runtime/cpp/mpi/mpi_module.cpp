#include "mpi_module.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiled_function.h"
#include "mpi_transport.h"
#include "released_gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stablexla {
namespace {

MpiTransport* the_mpi = nullptr;  // lives as long as the process: runs may use it in any thread

MpiTransport& mpi() {
  if (the_mpi == nullptr) throw std::runtime_error("MPI was not started");
  return *the_mpi;
}

void start(const std::string& path, const std::map<std::string, std::int64_t>& constants, int rank,
           std::int64_t data, std::int64_t control, const std::vector<int>& pids, bool crowded) {
  if (the_mpi != nullptr) throw std::runtime_error("MPI was started before");
  const int size = static_cast<int>(pids.size());
  the_mpi = new MpiTransport(MpiLibrary(path, constants), {rank, size, data, control, pids, crowded});
  set_transport(the_mpi);
}

// Waits without the GIL, but for polling signals. None, or what went wrong.
nb::object gather(const MpiTransport::Arrays& arrays, std::optional<double> time_limit) {
  bool interrupted = false;
  Failure failure;
  {
    ReleasedGil gil;
    Waiting waiting;
    waiting.until = deadline_after(time_limit.value_or(-1));
    waiting.pulse = [&] {
      gil.take();
      interrupted = PyErr_CheckSignals() != 0;
      gil.release();
      return interrupted;
    };
    failure = mpi().gather(arrays, waiting);
  }
  if (interrupted) throw nb::python_error();
  if (failure.summary.empty()) return nb::none();
  return nb::make_tuple(failure.summary, failure.arrived, failure.missing);
}

bool leave(double seconds, bool failed) {
  ReleasedGil gil;
  return mpi().leave(seconds, failed);
}

void end_process_after(double seconds) {
  std::thread([seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    _exit(1);
  }).detach();
}

}  // namespace

void bind_mpi(nb::module_& m) {
  m.def("start_mpi", start, "path"_a, "constants"_a, "rank"_a, "data"_a, "control"_a, "pids"_a, "crowded"_a,
        "Devices of other processes are reached over MPI from now on: `path` is the library that mpi4py has loaded,\n"
        "`constants` its handles and numbers by name, `data` and `control` communicators of all processes, `pids`\n"
        "those of the processes by rank, 0 for one on another machine.");
  m.def("gather_mpi", gather, "arrays"_a, "time_limit"_a.none(),
        "After a run: sends this process's arrays (addresses and bytes) to the others of the run, and fills theirs.\n"
        "Returns None, or what went wrong: summary, devices that came, and where the others are.");
  m.def("leave_mpi", leave, "seconds"_a, "failed"_a,
        "Tells the other processes that this one ends, and waits until all do. Where something failed they have that\n"
        "many seconds; false when they take longer, or are gone.");
  m.def("end_process_after", end_process_after, "seconds"_a,
        "Ends the process with status 1 if it still runs then, whatever it does.");
}

}  // namespace stablexla
