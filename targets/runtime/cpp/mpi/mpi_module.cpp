#include "mpi_module.h"

#include <nanobind/stl/map.h>
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

using Arrays = std::vector<std::pair<std::uintptr_t, std::int64_t>>;  // addresses and bytes

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
  if (size > 1) set_transport(the_mpi);
}

std::vector<MpiTransport::Array> arrays_of(const Arrays& arrays) {
  std::vector<MpiTransport::Array> made;
  for (auto [address, bytes] : arrays) made.push_back({reinterpret_cast<void*>(address), bytes});
  return made;
}

Deadline deadline_of(nb::handle seconds) {
  if (seconds.is_none()) return Deadline::max();
  const std::chrono::duration<double> time(nb::cast<double>(seconds));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

// Waits without the GIL, but for polling signals; None on success.
template <typename Wait>
nb::object waited(Wait wait) {
  bool interrupted = false;
  Failure failure;
  {
    ReleasedGil gil;
    Waiting waiting;
    waiting.pulse = [&] {
      gil.take();
      interrupted = PyErr_CheckSignals() != 0;
      gil.release();
      return interrupted;
    };
    failure = wait(waiting);
  }
  if (interrupted) throw nb::python_error();
  if (failure.summary.empty()) return nb::none();
  return nb::make_tuple(failure.summary, failure.arrived, failure.missing);
}

nb::object prepare(int local, const std::vector<std::vector<int>>& sets, nb::object time_limit) {
  const Deadline deadline = deadline_of(time_limit);
  return waited([&](const Waiting& waiting) { return mpi().prepare(local, sets, deadline, waiting); });
}

nb::object gather(int local, const Arrays& own, const std::vector<Arrays>& others, nb::object time_limit) {
  const Deadline deadline = deadline_of(time_limit);
  const std::vector<MpiTransport::Array> sources = arrays_of(own);
  std::vector<std::vector<MpiTransport::Array>> targets;
  for (const Arrays& arrays : others) targets.push_back(arrays_of(arrays));
  return waited([&](const Waiting& waiting) { return mpi().gather(local, sources, targets, deadline, waiting); });
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
  m.def("prepare_mpi", prepare, "local"_a, "sets"_a, "time_limit"_a,
        "Makes a communicator of each of these sets of processes, which are the same in all processes; each has\n"
        "`local` devices. Returns as `gather_mpi`.");
  m.def("gather_mpi", gather, "local"_a, "own"_a, "others"_a, "time_limit"_a,
        "Sends the arrays `own` (addresses and bytes) to all processes, and fills others[process] with theirs.\n"
        "Returns None, or what went wrong: summary, devices that came, and where the others are.");
  m.def("leave_mpi", leave, "seconds"_a, "failed"_a,
        "Tells the other processes that this one ends, and waits until all do. Where something failed they have that\n"
        "many seconds; false when they take longer, or are gone.");
  m.def("end_process_after", end_process_after, "seconds"_a,
        "Ends the process with status 1 if it still runs then, whatever it does.");
}

}  // namespace stablexla
