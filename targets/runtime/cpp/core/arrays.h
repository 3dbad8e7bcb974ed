// numpy arrays over the runtime's memory: owners and views.
#pragma once

#include "compiled_function.h"
#include "plain_run.h"

namespace stablexla {

[[noreturn]] void throw_python();  // throws the exception in Python's error indicator
// A Python function of the slow path.
nb::object cold_path(const char* function, const char* module = "stablexla.targets.runtime.arguments");
constexpr const char* kAvailableMemory = "stablexla.targets.runtime.available_memory";
constexpr const char* kCollectiveErrors = "stablexla.targets.runtime.collective_errors";
PyObject* owner_of(Block block);  // a capsule that gives the block back to the pool when it dies
nb::object view_of(const ArraySpec& spec, void* data, nb::object owner, bool writable);
// Returns the address of a host argument's elements: in the array itself, in a conversion that goes to `kept`, or
// in `scalar`, which has room for one. Throws nb::python_error for what does not fit.
void* host_argument(const ArraySpec& spec, PyObject* given, void* scalar, std::vector<nb::object>& kept,
                    const std::string& program, std::size_t number);
bool is_plain_host_value(PyObject* given);  // a numpy array, or a number of Python's or numpy's

}  // namespace stablexla
