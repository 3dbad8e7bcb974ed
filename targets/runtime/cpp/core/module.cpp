// Python bindings of the native runtime, declared in _runtime.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "blas_threads.h"
#include "arrays.h"
#include "callable.h"
#include "compiled_function.h"
#include "cpu_limit.h"
#include "device_run.h"
#include "device_threads.h"
#include "ffi_call.h"
#include "gpu_bindings.h"
#include "hosted_run.h"
#include "memory_pool.h"
#include "mpi_module.h"
#include "pjrt_module.h"
#include "profile.h"
#include "object_code.h"
#include "released_gil.h"
#include "relocations.h"
#include "run_limits.h"
#include "shared_blocks.h"
#include "system.h"
#include "thread_pool.h"
#include "tile_permission.h"

namespace nb = nanobind;
using namespace nb::literals;
using stablexla::ArraySpec;
using stablexla::CompiledFunction;
using stablexla::ObjectCode;
using stablexla::RunLimits;

namespace {

// Sets Python's error for an allocation of the runtime itself that failed.
void set_no_heap() noexcept {
  try {
    stablexla::cold_path("raise_no_heap", stablexla::kAvailableMemory)();
  } catch (nb::python_error& error) {
    error.restore();
  }
}

// f(*arguments): one array for one result, else a tuple. A type slot (tp_call), twice as fast as a method.
PyObject* call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  try {
    return stablexla::call_by_position<CompiledFunction>(self, arguments, keywords);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    set_no_heap();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// A program keeps its code alive, which may refer to the program: the garbage collector has to see the cycle.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  auto* function = nb::inst_ptr<CompiledFunction>(self);
  Py_VISIT(function->keep_alive.ptr());
  Py_VISIT(function->host.ptr());
  Py_VISIT(function->collective_configs.ptr());
  for (const stablexla::Callback& callback : function->callbacks) Py_VISIT(callback.handler.ptr());
  return 0;
}

// The code may be freed only when it cannot be called any more, as here: the object is unreachable.
int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* function = nb::inst_ptr<CompiledFunction>(self);
  function->callbacks.clear();
  function->host.reset();
  function->keep_alive.reset();
  return 0;
}

PyType_Slot function_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {0, nullptr}};

nb::list execute_replicated(const CompiledFunction& self, nb::sequence given, bool donate,
                            std::optional<double> time_limit) {
  std::vector<nb::object> arguments;
  for (nb::handle each : given) {  // the callers' lists may change during the calls
    arguments.push_back(nb::steal(PySequence_Tuple(each.ptr())));
    if (!arguments.back().is_valid()) throw nb::python_error();
  }
  const double seconds = time_limit ? std::max(0.0, *time_limit) : -1;
  nb::list results;
  for (auto& made : self.execute_replicated(arguments, donate, seconds)) {
    nb::list device;
    for (nb::object& array : made) device.append(std::move(array));
    results.append(std::move(device));
  }
  return results;
}

const stablexla::Device* this_device() {
  return stablexla::innermost_run_here.device;
}

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::dict stats() {
  const stablexla::PoolStats now = stablexla::pool_stats();
  nb::dict dict;
  dict["in_use_bytes"] = now.in_use_bytes;
  dict["in_use_blocks"] = now.in_use_blocks;
  dict["cached_bytes"] = now.cached_bytes;
  dict["cached_blocks"] = now.cached_blocks;
  dict["limit_bytes"] = now.limit_bytes;
  dict["memory_limit_bytes"] = now.memory_limit_bytes;
  dict["reused"] = now.reused;
  dict["allocated"] = now.allocated;
  dict["peak_bytes"] = now.peak_bytes;
  return dict;
}

void set_num_threads(int count) {
  if (count < 1 || count > 4096) throw nb::value_error("the number of threads is between 1 and 4096");
  bool done;
  {
    nb::gil_scoped_release released;
    done = stablexla::set_num_threads(count);
  }
  if (!done) throw std::runtime_error("the number of threads cannot change inside a parallel region");
}

}  // namespace

NB_MODULE(_runtime, m) {
  nb::set_leak_warnings(false);  // programs in global variables outlive the interpreter's clean-up
  stablexla::import_numpy();
  stablexla::ask_for_tiles();  // before there are threads
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      set_no_heap();
    }
  });

  nb::class_<ArraySpec>(m, "ArraySpec",
                        "Element type, shape and name of one array of a program's interface.\n\n"
                        ">>> print(ArraySpec('float32', (2, 3), name='x'))\nfloat32[2,3]")
      .def(nb::init<nb::handle, nb::sequence, std::string>(), "dtype"_a, "shape"_a, "name"_a = "")
      .def_ro("dtype", &ArraySpec::dtype)
      .def_prop_ro("shape", &ArraySpec::shape_tuple)
      .def_ro("name", &ArraySpec::name)
      .def_ro("nbytes", &ArraySpec::bytes)
      .def(nb::self == nb::self)
      .def("__hash__", [](const ArraySpec& self) { return nb::hash(nb::make_tuple(self.name, self.shape_tuple())); })
      .def("__str__", &ArraySpec::text)
      .def("__repr__", [](const ArraySpec& self) {
        return "<ArraySpec " + (self.name.empty() ? "" : self.name + ": ") + self.text() + ">";
      });

  nb::class_<CompiledFunction>(
      m, "CompiledFunction", nb::type_slots(function_slots), nb::is_weak_referenceable(),
      "Machine code as a callable: arrays in, new arrays out; one array for one result, else a tuple.\n\n"
      "`entry` is the address of void f(void** packed), where packed[i] is the address of argument i and every\n"
      "argument is a data pointer: parameters, constants, results, arena. Results, constants and the arena are\n"
      "aligned to 64 bytes, parameters to their elements. The GIL is released while the code runs, and any number\n"
      "of threads may call at once. `keep_alive` is whatever holds the code. `host` is what code may call back:\n"
      "its `callbacks` are (handler, inputs, outputs) with the specs of the two tuples of arrays that the handler is\n"
      "called with; when one raises, the program ends, and its caller gets the exception. `guard` is which end of each\n"
      "array meets a page that nobody may touch, \"ends\" or \"starts\"; without, runs are not under guard.\n\n"
      "Raises ExecutionError for arguments that do not fit: arrays must have the parameter's dtype and shape, in any\n"
      "layout; Python numbers are converted when the dtype can hold them.")
      .def(nb::init<std::string, std::uintptr_t, std::vector<ArraySpec>, std::vector<ArraySpec>, std::size_t,
                    nb::sequence, std::map<int, int>, bool, nb::object, nb::object, nb::sequence, int,
                    std::map<std::int64_t, std::string>, const std::string&>(),
           "name"_a, "entry"_a, "parameters"_a, "results"_a, "arena_bytes"_a = 0, "constants"_a = nb::tuple(),
           "aliases"_a = std::map<int, int>(), "flush_denormals"_a = false, "keep_alive"_a = nb::none(), "host"_a = nb::none(),
           "collectives"_a = nb::tuple(), "num_devices"_a = 1,
           "places"_a = std::map<std::int64_t, std::string>(), "guard"_a = "")
      .def("execute", &stablexla::execute_sequence<const CompiledFunction>, "arguments"_a, "donate"_a = false,
           "Calls the program; always a list of arrays. With `donate`, those in `aliases` may lie where their argument "
           "lay.")
      .def("place", &CompiledFunction::place_in, "processes"_a, "key"_a,
           "Each device is in that process from now on, by rank; at first all are in this one. Runs on other devices of\n"
           "the same processes have another `key`, the same in all processes.")
      .def("refuse", &CompiledFunction::refuse, "why"_a,
           "Tells the other processes that this one takes no part in the run that is next.")
      .def("execute_replicated", &execute_replicated, "arguments"_a, "donate"_a = false, "time_limit"_a.none() = 60.0,
           "Calls the program for the devices of this process at once, one for each row of arguments, and gives a row\n"
           "of results for each. A device waits for others at most `time_limit` seconds, with None for ever.")
      .def("seed", &CompiledFunction::seed, "number"_a, "From now on random keys are those of this number, anew.")
      .def_ro("host", &CompiledFunction::host)
      .def_ro("name", &CompiledFunction::name)
      .def_ro("entry", &CompiledFunction::entry)
      .def_ro("parameters", &CompiledFunction::parameters)
      .def_ro("results", &CompiledFunction::results)
      .def_ro("arena_bytes", &CompiledFunction::arena_bytes)
      .def_ro("aliases", &CompiledFunction::aliases)
      .def_ro("flush_denormals", &CompiledFunction::flush_denormals)
      .def_ro("keep_alive", &CompiledFunction::keep_alive)
      .def_ro("num_devices", &CompiledFunction::num_devices)
      .def_rw("source", &CompiledFunction::source, "A digest of the program, which all processes must have; 0 for none.")
      .def_ro("collectives", &CompiledFunction::collective_configs, "What devices do together, as it was given.")
      .def_prop_ro("constants", &CompiledFunction::constants, "The bytes of each constant, read-only.")
      .def_ro("places", &CompiledFunction::places, "Where it can be stopped, by the numbers that its machine code has.")
      .def("__repr__", &CompiledFunction::repr);

  nb::class_<RunLimits>(
      m, "RunLimits",
      "Limits of the runs of a thread, as a context manager: the seconds that they may take together, and `cancel` by\n"
      "another thread. Runs that go beyond end with ExecutionError.")
      .def("__init__",
           [](RunLimits* self, std::optional<double> time_limit) {
             new (self) RunLimits(time_limit ? std::max(0.0, *time_limit) : -1);
           },
           "time_limit"_a = nb::none())
      .def("__enter__",
           [](nb::object self) {
             if (!nb::cast<RunLimits&>(self).enter()) throw std::runtime_error("these limits are in force already");
             return self;
           })
      .def("__exit__", [](RunLimits& self, nb::args) { self.leave(); })
      .def("cancel", [](RunLimits& self) { self.stop(stablexla::Ending::kCancelled); },
           "Ends the run that is in progress under these limits, and those to come.");
  m.def("set_signal_thread", &stablexla::set_signal_thread,
        "Makes the calling thread the one whose runs end on signals: Python's main thread.");

  nb::class_<ObjectCode>(m, "ObjectCode",
                         "Machine code of an ELF object file, placed in memory and bound to what it calls.\n\n"
                         "`symbols` has an address for each of `undefined_symbols`. Raises RuntimeError for bytes that "
                         "are no such file.")
      .def("__init__",
           [](ObjectCode* self, nb::bytes object, const stablexla::Symbols& symbols) {
             new (self) ObjectCode(view(object), symbols);
           },
           "object"_a, "symbols"_a)
      .def("address", &ObjectCode::address, "name"_a, "Where a function is; 0 when there is none.")
      .def_prop_ro("size", &ObjectCode::size);
  m.def("undefined_symbols", [](nb::bytes object) { return stablexla::undefined_symbols(view(object)); }, "object"_a,
        "The functions that an object file calls but does not have.");
  m.def("processor_flags", &stablexla::processor_flags,
        "Features of the processor, by Linux's names; none where the system does not say.");
  m.def("flags_of_words", &stablexla::flags_of_words, "first"_a, "second"_a,
        "Features of AArch64 in the words AT_HWCAP and AT_HWCAP2.");
  m.def("flags_of_names", &stablexla::flags_of_names, "names"_a,
        "Features of AArch64 in names of macOS, of those that `sysctl hw.optional` lists with the value 1.");
  m.def(
      "relocated",
      [](unsigned machine, std::uint32_t type, nb::bytes place, std::uint64_t address, std::uint64_t value) {
        std::string bytes(place.c_str(), place.size());
        stablexla::relocate(machine, type, bytes.data(), bytes.size(), address, value);
        return nb::bytes(bytes.data(), bytes.size());
      },
      "machine"_a, "type"_a, "place"_a, "address"_a, "value"_a,
      "The bytes of a place after a relocation of ELF, for a processor by ELF's number.");
  m.def("find_symbol", &stablexla::find_symbol, "name"_a,
        "The address of a function of this library or of what the process has loaded; 0 when there is none.");

  nb::class_<stablexla::FfiCall>(
      m, "FfiCall",
      "A call of a handler of XLA's typed foreign function interface.\n\n"
      "`stages` are the addresses of the handlers that instantiate, prepare, initialise and execute, or 0; `form` is JSON:\n"
      "the element types (XLA's numbers) and extents of \"inputs\" and \"outputs\", and \"attributes\", rows (name, kind,\n"
      "element type, size, value) sorted by name. Raises RuntimeError with what a handler says when it is instantiated.")
      .def("__init__",
           [](stablexla::FfiCall* self, std::string name, const std::array<std::uintptr_t, 4>& addresses,
              const std::string& form) {
             stablexla::FfiStages stages;
             for (std::size_t i = 0; i < stages.size(); ++i)
               stages[i] = reinterpret_cast<stablexla::ffi::Handler*>(addresses[i]);
             new (self) stablexla::FfiCall(std::move(name), stages, stablexla::Json::parse(form));
           },
           "name"_a, "stages"_a, "form"_a)
      .def_ro("name", &stablexla::FfiCall::name);

  m.def("register_ffi_type", &stablexla::register_ffi_type, "name"_a, "type_id"_a, "type_info"_a,
        "Gives a type of objects that handlers keep its number, from the addresses of its id and its description.");
  m.def("set_blas_functions", &stablexla::set_blas_functions, "get_num_threads"_a, "set_num_threads"_a,
        "Tells by which functions BLAS's own threads are counted and set; 0 where there are none.");
  m.def("array_of_dlpack", &stablexla::make_array_of_dlpack, "value"_a,
        "The elements of any CPU object with DLPack, as unsigned integers of their width, and DLPack's type code.");
  m.def("dlpack_of_array", &stablexla::make_dlpack_of_array, "array"_a, "type_code"_a,
        "An object with DLPack over a numpy array's memory, whose elements it calls by this type code.");
  m.def("begin_shutdown", &stablexla::begin_shutdown,
        "Keeps other threads from coming back out of machine code, as Python is about to end.");
  m.def("current_device", [] { return this_device() != nullptr ? this_device()->number : -1; },
        "The device that this thread runs a program for; -1 for a program of one device, and outside of programs.");
  m.def("run_stopped",
        [] {
          const stablexla::RunControl* run = stablexla::innermost_run_here.run;
          return run != nullptr && run->is_stopped();
        },
        "Whether the run that this thread is inside of is to end: another device failed, or the caller wants no more.");
  m.def("idle_device_threads", &stablexla::idle_device_threads, "Threads kept for the devices of runs to come.");
  m.def("default_num_threads", &stablexla::default_num_threads,
        "The number of CPUs this process may run on, or as many as its control group lets it use.");
  m.def("cpu_limit", nb::overload_cast<const std::string&, const std::string&>(&stablexla::cpu_limit), "groups"_a,
        "root"_a, "CPUs that the limits of control groups come to, 0 for none; from the text of /proc/self/cgroup.");
  m.def("get_num_threads", &stablexla::num_threads, "How many threads a program may use, the caller among them.");
  m.def("set_num_threads", &set_num_threads, "count"_a,
        "Sets how many threads programs may use; waits for the parallel region that is running.");
  m.def("parallel_for_address", [] { return reinterpret_cast<std::uintptr_t>(&stablexla_parallel_for); },
        "The address of `stablexla_parallel_for(body, ctx, n, grain)`.");
  m.def("is_shared_block", [](std::uintptr_t address) { return stablexla::is_shared(reinterpret_cast<void*>(address)); },
        "address"_a, "Whether a result lies at an address, of a program that may be given it back as a donation.");
  m.def("begin_profile", &stablexla::begin_profile, "From now on the marks that programs pass are noted.");
  m.def("end_profile",
        [] {
          nb::list threads;
          for (const auto& each : stablexla::end_profile())
            threads.append(nb::make_tuple(each.thread, nb::bytes(each.pairs.data(), each.pairs.size())));
          return threads;
        },
        "For each thread its number and the marks that it passed, each with its time in ns, as pairs of int64.");
  m.def("pool_stats", &stats, "Bytes and blocks of results and arenas in use and cached, and how they came about.");
  m.def("trim_pool", &stablexla::trim_pool, "Gives all cached memory back to the system.");
  m.def("set_pool_limit", &stablexla::set_pool_limit, "bytes"_a, "Sets how much unused memory is kept for reuse.");
  m.def("set_memory_limit", &stablexla::set_memory_limit, "bytes"_a,
        "Sets how much memory the pool may take altogether; the largest number is no limit.");
  m.def("set_pool_fill", &stablexla::set_pool_fill, "byte"_a,
        "Fills memory for results and arenas with a byte before it is used; -1 leaves what was there before.");
  stablexla::bind_mpi(m);
  stablexla::pjrt::bind(m);
  stablexla::bind_gpu(m);
}
