// Python bindings for GPUs.
#include "gpu_bindings.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arrays.h"
#include "callable.h"
#include "gpu_array.h"
#include "gpu_function.h"
#include "gpu_pinned.h"

namespace stablexla {

using namespace nb::literals;
using gpu::DeviceArray;
using gpu::Function;

namespace {

void set_error(const gpu::Error& error) {
  try {
    gpu::raise(error);
  } catch (nb::python_error& raised) {
    raised.restore();
  }
}

// f(*arguments): one array for one result, else a tuple. A type slot (tp_call), twice as fast as a method.
PyObject* call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  try {
    return call_by_position<Function>(self, arguments, keywords);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const gpu::Error& error) {
    set_error(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  auto* function = nb::inst_ptr<Function>(self);
  Py_VISIT(function->keep_alive.ptr());
  Py_VISIT(function->host.ptr());
  Py_VISIT(function->image.ptr());
  for (const Callback& callback : function->callbacks) Py_VISIT(callback.handler.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* function = nb::inst_ptr<Function>(self);
  function->callbacks.clear();
  function->host.reset();
  function->image.reset();
  function->keep_alive.reset();
  return 0;
}

PyType_Slot function_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {0, nullptr}};

void bind_function(nb::module_& m) {
  nb::class_<Function>(
      m, "GpuFunction", nb::type_slots(function_slots), nb::is_weak_referenceable(),
      "A program for GPUs as a callable. `entry` is that of a host function as CompiledFunction's, but the arguments\n"
      "that it gets are addresses on the device. `kernels` are names in the image with the dynamic shared memory that\n"
      "their launches ask for at most; image(chip) gives PTX or a cubin, as bytes, when a device is first run on.\n\n"
      "Where any argument is an array on a device, so are the results, and the call does not wait for them. Else the\n"
      "results are numpy arrays.\n\n"
      "Raises ExecutionError for arguments that do not fit, and for what the driver refuses.")
      .def(nb::init<std::string, std::uintptr_t, std::vector<ArraySpec>, std::vector<ArraySpec>, std::size_t,
                    nb::sequence, std::map<int, int>, Function::Kernels, nb::object, std::string, nb::object,
                    nb::object, bool, std::map<std::int64_t, std::string>>(),
           "name"_a, "entry"_a, "parameters"_a, "results"_a, "arena_bytes"_a = 0, "constants"_a = nb::tuple(),
           "aliases"_a = std::map<int, int>(), "kernels"_a = Function::Kernels(), "image"_a = nb::none(),
           "chip"_a = "", "keep_alive"_a = nb::none(), "host"_a = nb::none(), "flush_denormals"_a = false,
           "places"_a = std::map<std::int64_t, std::string>())
      .def("execute", &execute_sequence<Function>, "arguments"_a, "donate"_a = false,
           "Calls the program; always a list of arrays. With `donate`, those in `aliases` may lie where their argument "
           "lay on the device.")
      .def("execute_replicated",
           [](const Function& self, nb::args, nb::kwargs) {
             throw gpu::Error(self.name + ": programs for several devices do not run on GPUs yet");
           })
      .def("refuse", [](const Function&, nb::args) {}, "There are no other processes to be told.")
      .def("launch_times", &Function::launch_times, "arguments"_a,
           "Calls the program once: the name of the kernel and the microseconds of each launch, in their order.")
      .def("seed", &Function::seed, "number"_a, "From now on random keys are those of this number, anew.")
      .def_ro("host", &Function::host)
      .def_ro("name", &Function::name)
      .def_ro("entry", &Function::entry)
      .def_ro("parameters", &Function::parameters)
      .def_ro("results", &Function::results)
      .def_ro("arena_bytes", &Function::arena_bytes)
      .def_ro("aliases", &Function::aliases)
      .def_ro("kernels", &Function::kernels)
      .def_ro("image", &Function::image)
      .def_ro("chip", &Function::chip)
      .def_ro("flush_denormals", &Function::flush_denormals)
      .def_ro("places", &Function::places)
      .def_ro("keep_alive", &Function::keep_alive)
      .def_ro("num_devices", &Function::num_devices)
      .def_prop_ro("collectives", [](const Function&) { return nb::tuple(); })
      .def_prop_ro("constants", &Function::constant_bytes, "The bytes of each constant, read-only.")
      .def("__repr__", &Function::repr);
}

void bind_array(nb::module_& m) {
  nb::class_<DeviceArray>(
      m, "DeviceArray",
      "An array in the memory of a GPU. Its elements may not be computed yet when a program gives it: what reads them\n"
      "waits. torch, CuPy and JAX take it without a copy, by `from_dlpack`.")
      .def_prop_ro("shape", [](const DeviceArray& self) { return self.spec.shape_tuple(); }, "Its extents.")
      .def_prop_ro("dtype", [](const DeviceArray& self) { return self.spec.dtype; }, "Its elements' type, of numpy.")
      .def_prop_ro("ndim", [](const DeviceArray& self) { return self.spec.shape.size(); }, "Its rank.")
      .def_prop_ro("nbytes", [](const DeviceArray& self) { return self.spec.bytes; }, "Its size.")
      .def_prop_ro("device", [](const DeviceArray& self) { return self.device().number; }, "The number of its GPU.")
      .def_prop_ro("address", [](const DeviceArray& self) { return self.address(); }, "Where it is on the device.")
      .def_prop_ro("is_ready", &DeviceArray::is_ready, "Whether its elements are computed.")
      .def("block_until_ready",
           [](nb::handle_t<DeviceArray> self) {
             nb::cast<const DeviceArray&>(self).wait();
             return nb::borrow(self);
           },
           "Waits until its elements are computed, and gives it back. Raises ExecutionError when that failed.")
      .def("copy_to_host", &DeviceArray::to_host, "A numpy array with its elements. Waits for them.")
      .def("copy", &DeviceArray::copy, "Another array on the same GPU with the same elements. Does not wait for them.")
      .def("__array__",
           [](nb::handle_t<DeviceArray> self, nb::object dtype, nb::object copy) {
             return cold_path("as_numpy", "stablexla.targets.runtime.gpu_arrays")(self, dtype, copy);
           },
           "dtype"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack_device__", [](const DeviceArray& self) { return nb::make_tuple(2, self.device().number); })
      .def("__dlpack__",
           [](nb::handle_t<DeviceArray> self, nb::object stream, nb::object max_version, nb::object dl_device,
              nb::object copy) {
             return cold_path("to_dlpack", "stablexla.targets.runtime.gpu_arrays")(self, stream, max_version, dl_device,
                                                                                  copy);
           },
           nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(), "dl_device"_a = nb::none(),
           "copy"_a = nb::none())
      .def("_capsule", &DeviceArray::to_dlpack, "stream"_a.none(), "is_versioned"_a)
      .def_prop_ro("__cuda_array_interface__",
                   [](nb::handle_t<DeviceArray> self) {
                     return cold_path("interface_of", "stablexla.targets.runtime.gpu_arrays")(self);
                   })
      .def("__len__",
           [](const DeviceArray& self) {
             if (self.spec.shape.empty()) throw nb::type_error("an array of rank 0 has no length");
             return self.spec.shape[0];
           })
      .def("__repr__", &DeviceArray::repr);
}

void bind_stream(nb::module_& m) {
  nb::class_<gpu::Stream>(m, "GpuStream", "A queue of work on a GPU: what is queued on one is done in that order.")
      .def_prop_ro("device", [](const gpu::Stream& self) { return self.device.number; })
      .def_prop_ro("handle", [](const gpu::Stream& self) { return reinterpret_cast<std::uintptr_t>(self.handle); })
      .def_prop_ro("is_ours", [](const gpu::Stream& self) { return self.is_ours; })
      .def_prop_ro("is_idle",
                   [](const gpu::Stream& self) {
                     self.device.check_alive();
                     gpu::ContextScope scope(self.device);
                     return self.is_idle();
                   })
      .def("synchronize",
           [](const gpu::Stream& self) {
             self.device.check_alive();
             {
               ReleasedGil released;
               gpu::ContextScope scope(self.device);
               self.wait();
             }
             gpu::let_go();
           })
      .def("wait_for",
           [](const gpu::Stream& self, const gpu::Stream& other) {
             self.device.check_alive();
             gpu::ContextScope scope(self.device);
             self.wait_for(other);
           },
           "other"_a);
  m.def("gpu_stream",
        [](int device, std::optional<std::uintptr_t> handle) {
          gpu::Device& found = gpu::Driver::get().device(device);
          found.check_alive();
          if (!handle) return found.new_stream();
          return std::make_shared<gpu::Stream>(found, reinterpret_cast<cuda::Stream>(*handle), false);
        },
        "device"_a, "handle"_a.none() = nb::none(), "A new stream, or that of somebody else by its handle.");
  m.def("push_gpu_stream", [](gpu::StreamRef stream) { gpu::chosen_streams().push_back(std::move(stream)); },
        "stream"_a, "From now on programs that this thread calls run on the stream.");
  m.def("pop_gpu_stream", [] { gpu::chosen_streams().pop_back(); }, "Until here.");
  m.def("current_gpu_stream", [](int device) { return gpu::current_stream(gpu::Driver::get().device(device)); },
        "device"_a, "The stream that programs run on which this thread calls.");
}

nb::dict describe(int number) {
  const gpu::Device& device = gpu::Driver::get().device(number);
  nb::dict found;
  found["number"] = device.number;
  found["name"] = device.name;
  found["chip"] = device.chip();
  found["total_bytes"] = device.total_bytes;
  found["multiprocessors"] = device.attribute(cuda::kMultiprocessorCount);
  found["shared_bytes"] = device.attribute(cuda::kMaxSharedMemoryPerBlockOptin);
  found["driver"] = device.driver.version_text();
  return found;
}

nb::dict memory_of(int number) {
  gpu::Device& device = gpu::Driver::get().device(number);
  device.check_alive();
  gpu::let_go();
  gpu::ContextScope scope(device);
  const gpu::Memory::Stats now = device.memory().stats();
  nb::dict found;
  found["in_use"] = now.in_use;
  found["blocks"] = now.blocks;
  found["peak"] = now.peak;
  found["held"] = now.held;
  found["pinned"] = device.pinned().held();
  found["free"] = now.free;
  found["total"] = now.total;
  return found;
}

void synchronize(int number) {
  gpu::Device& device = gpu::Driver::get().device(number);
  device.check_alive();
  {
    ReleasedGil released;
    gpu::ContextScope scope(device);
    device.check(device.cu.cuCtxSynchronize(), "waiting for all programs");
  }
  gpu::let_go();
}

void release_memory(int number) {
  synchronize(number);
  gpu::Device& device = gpu::Driver::get().device(number);
  ReleasedGil released;
  gpu::ContextScope scope(device);
  device.memory().release();
  device.pinned().release();
}

}  // namespace

void bind_gpu(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const gpu::Error& error) {
      set_error(error);
    }
  });
  bind_function(m);
  bind_array(m);
  bind_stream(m);
  m.def("use_cuda_driver", [](std::optional<std::string> path) { gpu::Driver::use(path.value_or("")); },
        "path"_a.none(), "From now on programs run on the driver in this library; None looks for it anew.");
  m.def("gpu_count", [] { return gpu::Driver::get().count(); }, "How many GPUs there are.");
  m.def("describe_gpu", &describe, "device"_a, "What a GPU is; makes no context there.");
  m.def("gpu_memory", &memory_of, "device"_a, "What the memory of a GPU holds, in bytes.");
  m.def("synchronize_gpu", &synchronize, "device"_a, "Waits for all programs on a GPU.");
  m.def("release_gpu_memory", &release_memory, "device"_a,
        "Gives back what nobody uses, after waiting for all programs.");
  m.def("put_on_gpu", &gpu::put, "array"_a, "device"_a, "An array in a GPU's memory.");
}

}  // namespace stablexla
