// Calls of compiled programs from Python, whatever they run on.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <stdexcept>
#include <utility>

namespace stablexla {

namespace nb = nanobind;

// f(*arguments): one array for one result, else a tuple; null with Python's error set. Throws what the program throws.
template <typename Program>
PyObject* call_by_position(PyObject* self, PyObject* arguments, PyObject* keywords) {
  if (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0) {
    PyErr_SetString(PyExc_TypeError, "a compiled program takes its arguments by position");
    return nullptr;
  }
  if (!nb::inst_ready(self)) throw std::runtime_error("a compiled function that was never initialised");
  auto* tuple = reinterpret_cast<PyTupleObject*>(arguments);
  auto made =
      nb::inst_ptr<Program>(self)->execute(tuple->ob_item, static_cast<std::size_t>(PyTuple_GET_SIZE(arguments)));
  if (made.size() == 1) return made[0].release().ptr();
  PyObject* results = PyTuple_New(static_cast<Py_ssize_t>(made.size()));
  if (results == nullptr) return nullptr;
  for (std::size_t i = 0; i < made.size(); ++i)
    PyTuple_SET_ITEM(results, static_cast<Py_ssize_t>(i), made[i].release().ptr());
  return results;
}

// Calls with a sequence of arguments; the results are always a list.
template <typename Program>
nb::list execute_sequence(Program& self, nb::sequence given, bool donate) {
  nb::object arguments = nb::steal(PySequence_Tuple(given.ptr()));  // the caller's list may change meanwhile
  if (!arguments.is_valid()) throw nb::python_error();
  auto* tuple = reinterpret_cast<PyTupleObject*>(arguments.ptr());
  nb::list results;
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(arguments.ptr()));
  for (nb::object& array : self.execute(tuple->ob_item, count, donate)) results.append(std::move(array));
  return results;
}

}  // namespace stablexla
