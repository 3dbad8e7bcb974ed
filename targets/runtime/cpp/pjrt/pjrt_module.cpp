// The PJRT table as a capsule for JAX. Compiling is the only function that needs Python; programs with host calls, and
// those of several processes, take the GIL for their arguments.
#include "pjrt_module.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "arrays.h"
#include "compiled_function.h"
#include "pjrt_objects.h"
#include "pjrt_queue.h"
#include "released_gil.h"
#include "run_limits.h"

namespace stablexla::pjrt {

namespace nb = nanobind;

namespace {

// The GIL on a thread of jaxlib's. Not to be taken once Python ends.
class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) { PyErr_Fetch(&type_, &value_, &trace_); }
  ~Gil() {
    PyErr_Restore(type_, value_, trace_);
    PyGILState_Release(state_);
  }
  Gil(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

PJRT_Error* ending() { return error(kFailedPrecondition, "Python is about to end"); }

void without_gil(const std::function<void()>& wait) {
  if (is_ending() || !Py_IsInitialized() || PyGILState_Check() == 0) return wait();
  PyThreadState* state = PyEval_SaveThread();
  wait();
  PyEval_RestoreThread(state);
}

int raise(void* exception) {
  PyObject* value = static_cast<PyObject*>(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_DECREF(value);
  return -1;
}

// Has Python's main thread raise the exception that is set, between two of its instructions.
void raise_later() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Py_DECREF(type);
  Py_XDECREF(trace);
  if (Py_AddPendingCall(&raise, value) == 0) return;
  Py_DECREF(value);
  PyErr_SetInterrupt();  // too much else is pending
}

bool raised_by_signal() {
  if (is_ending()) return false;
  Gil gil;
  if (PyErr_CheckSignals() == 0) return false;
  raise_later();
  return true;
}

// A run on Python's main thread ends on signals.
class SignalledControl final : public RunControl {
 public:
  void look_for_signals() override {
    if (SignalledRun::is_due() && raised_by_signal()) stop(Ending::kInterrupted);
  }

 private:
  SignalledRun signalled_;
};

// What `work` returns, with the GIL; an exception is an error.
template <typename F>
PJRT_Error* with_python(F work) {
  if (is_ending()) return ending();
  Gil gil;
  try {
    return work();
  } catch (nb::python_error& failure) {
    if (failure.matches(PyExc_Exception)) return error(kInternal, failure.what());
    failure.restore();  // KeyboardInterrupt, SystemExit
    raise_later();
    return stopped("a program", true);
  } catch (const std::exception& failure) {
    return error(kInternal, failure.what());
  }
}

std::string text_of(nb::handle found) {
  const auto bytes = nb::cast<nb::bytes>(found);
  return {bytes.c_str(), bytes.size()};
}

// Calls `answer` of stablexla/pjrt/table.py; it gives an error as its code and message.
template <typename F, typename... A>
PJRT_Error* ask(PyObject* answer, F read, const char* what, A&&... arguments) {
  const nb::object found = nb::handle(answer)(what, std::forward<A>(arguments)...);
  if (nb::isinstance<nb::tuple>(found)) {
    const auto [code, message] = nb::cast<std::pair<int, std::string>>(found);
    return error(static_cast<Code>(code), message);
  }
  read(found);
  return nullptr;
}

// A Python object that threads of jaxlib's drop, perhaps after Python's end.
class Held {
 public:
  explicit Held(nb::object object) : object_(object.release().ptr()) {}
  ~Held() {
    if (is_ending() || !Py_IsInitialized()) return;
    Gil gil;
    Py_DECREF(object_);
  }
  Held(const Held&) = delete;
  nb::handle get() const { return object_; }

 private:
  PyObject* object_;
};

class Program final : public PJRT_Executable {
 public:
  Program(PyObject* answer, const nb::dict& made)
      : answer_(answer), code_(made), executable_(made["executable"]), plain_(made["plain"]) {}
  ~Program() override { delete marked_.load(); }

  bool needs_python() const override { return !code_.compiled->is_plain(); }

  PJRT_Error* run(const Memories& arguments, const Memories& results) override {
    const Code* marked = tracing.load(std::memory_order_relaxed) ? marked_.load(std::memory_order_acquire) : nullptr;
    const Code& code = marked != nullptr ? *marked : code_;
    if (needs_python())
      return with_python([&]() -> PJRT_Error* {
        call_python(code, arguments, results);
        return nullptr;
      });
    SignalledControl control;
    return run_code(code.plain, code.compiled->num_devices > 1 ? code.compiled : nullptr, arguments, results, control);
  }

  PJRT_Error* mark_calls(std::int64_t first, std::vector<TracedCall>& calls) override {
    const std::size_t count = devices[0]->client->device_list.size();
    return with_python([&] {
      const auto read = [&](nb::handle found) {
        const auto made = nb::cast<nb::dict>(found);
        for (nb::handle each : nb::list(made["calls"])) {
          const auto text = [&](int i) { return nb::cast<std::string>(each[i]); };
          calls.push_back({text(0), nb::cast<bool>(each[1]), text(2), text(3), text(4)});
        }
        if (marked_.load() == nullptr) marked_.store(new Code(made), std::memory_order_release);
      };
      return ask(answer_, read, "marked", executable_.get(), plain_.get(), count, first);
    });
  }

  PJRT_Error* save(std::string& bytes) override {
    return with_python([&] {
      return ask(answer_, [&](nb::handle found) { bytes = text_of(found); }, "saved", executable_.get(), plain_.get());
    });
  }

  PJRT_Error* partition(std::string& text) override {
    return with_python([&] {
      return ask(answer_, [&](nb::handle found) { text = text_of(found); }, "partitioned", executable_.get());
    });
  }

  PJRT_Error* count_costs(std::vector<std::pair<std::string, float>>& found) override {
    return with_python([&] {
      const auto read = [&](nb::handle pairs) {
        for (nb::handle each : nb::list(pairs)) found.push_back(nb::cast<std::pair<std::string, float>>(each));
      };
      return ask(answer_, read, "costs", executable_.get());
    });
  }

 private:
  // Machine code; that of a trace is another one.
  struct Code {
    explicit Code(const nb::dict& made)
        : function(made["function"]),
          run(made["run"]),
          compiled(nb::cast<const CompiledFunction*>(function.get())),
          plain(compiled->plain_code()) {}
    Held function, run;
    const CompiledFunction* compiled;
    const PlainCode plain;
  };

  static void call_python(const Code& code, const Memories& arguments, const Memories& results) {
    nb::list rows;
    for (const auto& of_device : arguments) {
      nb::list row;
      for (std::size_t i = 0; i < of_device.size(); ++i)
        row.append(view_of(code.compiled->parameters[i], of_device[i]->data, nb::none(), false));
      rows.append(std::move(row));
    }
    const nb::object made = code.compiled->num_devices == 1
                                ? nb::object(nb::make_tuple(code.function.get().attr("execute")(rows[0])))
                                : code.run.get()(rows);
    for (std::size_t d = 0; d < results.size(); ++d) {
      std::size_t array = 0;  // tokens are none
      for (const auto& each : results[d])
        if (each != nullptr) copy(nb::object(made[d][array++]), *each);
    }
  }

  static void copy(const nb::object& array, const Storage& to) {
    Py_buffer view;
    const nb::object bytes = array.attr("reshape")(-1).attr("view")("uint8");
    if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    std::memcpy(to.data, view.buf, static_cast<std::size_t>(view.len));
    PyBuffer_Release(&view);
  }

  PyObject* answer_;  // of Python's, as long as the process
  const Code code_;
  Held executable_, plain_;
  std::atomic<const Code*> marked_{nullptr};  // with the marks of a trace
};

template <typename T>
T taken(const nb::dict& from, const char* key) {
  return nb::cast<T>(from[key]);
}

std::vector<std::string> texts_of(const nb::dict& from, const char* key) {
  std::vector<std::string> made;
  for (nb::handle each : nb::list(from[key])) made.push_back(text_of(each));
  return made;
}

// `types` has a number for each result of the program, tokens among them, `kinds` the name of its memory, `orders` the
// order in which its elements are there.
void read_outputs(Program& program, const CompiledFunction& function, const std::vector<int>& types,
                  const std::vector<std::string>& kinds, const std::vector<Order>& orders) {
  int array = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto number = static_cast<PJRT_Buffer_Type>(types[i]);
    const std::size_t kind = kind_of(kinds.at(i));
    if (number == kToken) {
      program.outputs.push_back({number, {}, 0, -1, kind, {}});
      continue;
    }
    const ArraySpec& spec = function.results.at(static_cast<std::size_t>(array));
    const auto alias = function.aliases.find(array++);
    const bool is_alias = alias != function.aliases.end();
    program.outputs.push_back({number, logical({spec.shape.begin(), spec.shape.end()}, orders.at(i)), spec.bytes,
                               is_alias ? alias->second : -1, kind, orders[i]});
    program.output_bytes += static_cast<std::int64_t>(spec.bytes);
    if (is_alias) program.alias_bytes += static_cast<std::int64_t>(spec.bytes);
  }
  for (const ArraySpec& spec : function.parameters) program.argument_bytes += static_cast<std::int64_t>(spec.bytes);
  program.arena_bytes = static_cast<std::int64_t>(function.arena_bytes);
}

std::shared_ptr<PJRT_Executable> program_of(const PJRT_Client& client, PyObject* answer, const nb::dict& made) {
  auto program = std::make_shared<Program>(answer, made);
  const auto& function = *nb::cast<const CompiledFunction*>(made["function"]);
  program->name = function.name;
  program->text = text_of(made["text"]);
  program->fingerprint = taken<std::string>(made, "fingerprint");
  program->assignment = text_of(made["assignment"]);
  program->num_replicas = taken<int>(made, "num_replicas");
  program->num_partitions = taken<int>(made, "num_partitions");
  program->num_arguments = taken<std::size_t>(made, "num_arguments");
  program->takes = taken<std::vector<int>>(made, "takes");
  program->donated = taken<std::vector<int>>(made, "donated");
  program->code_bytes = taken<std::int64_t>(made, "code_bytes");
  program->parameter_shardings = Texts(texts_of(made, "parameter_shardings"));
  program->output_shardings = Texts(texts_of(made, "output_shardings"));
  read_outputs(*program, function, taken<std::vector<int>>(made, "output_types"),
               taken<std::vector<std::string>>(made, "output_kinds"),
               taken<std::vector<Order>>(made, "output_layouts"));
  const auto orders = taken<std::vector<Order>>(made, "argument_layouts");
  const auto types = taken<std::vector<int>>(made, "argument_types");
  std::vector<std::size_t> ranks(orders.size());
  for (std::size_t i = 0; i < program->takes.size(); ++i) {
    const auto number = static_cast<std::size_t>(program->takes[i]);
    const auto& shape = function.parameters.at(i).shape;
    ranks.at(number) = shape.size();
    program->parameters.push_back({static_cast<PJRT_Buffer_Type>(types.at(i)),
                                   logical({shape.begin(), shape.end()}, orders[number]), orders[number]});
  }
  for (std::size_t i = 0; i < orders.size(); ++i) program->argument_layouts.emplace_back(orders[i], ranks[i]);
  int number = 0;
  for (int id : taken<std::vector<int>>(made, "devices")) {
    PJRT_Device* device = client.device_list.at(static_cast<std::size_t>(id));
    if (device->description.process == client.process) {
      program->devices.push_back(device);
      program->logical_ids.push_back({number / program->num_partitions, number % program->num_partitions});
    }
    ++number;
  }
  program->lay_out();
  return program;
}

nb::object table(nb::object python, int count, std::string version, std::vector<std::int64_t> current,
                 std::vector<std::int64_t> minimum, bool asynchronous, int process, int processes) {
  PyObject* answer = python.release().ptr();  // it lives as long as the process
  Host host;
  host.is_asynchronous = asynchronous;
  host.compile = [answer](auto& client, const auto& program, const auto& options, auto& made) {
    return with_python([&] {
      const auto read = [&](nb::handle found) { made = program_of(client, answer, nb::cast<nb::dict>(found)); };
      return ask(answer, read, "compiled", nb::bytes(program.code, program.code_size),
                 nb::str(program.format, program.format_size), nb::bytes(options.data(), options.size()),
                 client.device_list.size());
    });
  };
  host.load = [answer](auto& client, const auto& bytes, const auto& options, auto& made) {
    return with_python([&] {
      const auto read = [&](nb::handle found) { made = program_of(client, answer, nb::cast<nb::dict>(found)); };
      return ask(answer, read, "loaded", nb::bytes(bytes.data(), bytes.size()),
                 nb::bytes(options.data(), options.size()), client.device_list.size());
    });
  };
  host.fingerprint = [answer](const auto& client, auto& found) {
    return with_python([&] {
      const auto read = [&](nb::handle number) { found = nb::cast<std::uint64_t>(number); };
      return ask(answer, read, "fingerprint", client.device_list.size());
    });
  };
  host.num_devices = count;
  if (count < 1) host.wrong = "the number of devices is from 1 to 1024";
  host.process = process;
  host.processes = processes;
  host.version = std::move(version);
  host.current_version = std::move(current);
  host.minimum_version = std::move(minimum);
  wait_without_gil = without_gil;
  interrupted = raised_by_signal;
  const PJRT_Api* made = make_table(std::move(host));
  return nb::steal(PyCapsule_New(const_cast<PJRT_Api*>(made), "pjrt_c_api", nullptr));
}

}  // namespace

void bind(nb::module_& m) {
  m.def("pjrt_drain", &drain, nb::call_guard<nb::gil_scoped_release>(),
        "Ends the programs that were started by the PJRT table and still run, and waits until they have.");
  m.def("pjrt_stop", &stop_queue,
        "Ends the programs that were started by the PJRT table and still run: their results are errors.");
  m.def("pjrt_table", &table, nb::arg("answer"), nb::arg("num_devices"), nb::arg("version"), nb::arg("current"),
        nb::arg("minimum"), nb::arg("asynchronous"), nb::arg("process") = 0, nb::arg("processes") = 1,
        "The table of the PJRT C API, as a capsule for `xla_bridge.register_plugin`; one for a process.\n\n"
        "`answer(name, ...)` calls a function of stablexla/pjrt/compiling.py, on any thread: \"compiled\" and \"loaded\"\n"
        "give a dict that describes a program, \"marked\" one of its code for traces, \"saved\" and \"partitioned\" bytes, \"costs\" names and numbers, \"fingerprint\" a number;\n"
        "and each an error as its code and message.");
}

}  // namespace stablexla::pjrt
