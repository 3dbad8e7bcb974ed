// numpy arrays over memory that the runtime knows: who owns it, and views of it.
#pragma once

#include "compiled_function.h"

namespace stablexla {

extern char nothing[64];  // what a zero-sized array points to: an address that may be given, never used

[[noreturn]] void throw_python();  // what Python's error indicator holds
// A function that is seldom needed.
nb::object cold_path(const char* function, const char* module = "stablexla.targets.runtime.arguments");
constexpr const char* kCollectiveErrors = "stablexla.targets.runtime.collective_errors";
PyObject* owner_of(Block block);  // a capsule that gives the block back to the pool when it dies
nb::object view_of(const ArraySpec& spec, void* data, nb::object owner, bool writable);
// Where the elements of an argument in host memory are: in the array itself, in one made of it that goes to `kept`, or
// in `scalar`, which has room for one. Throws nb::python_error for what does not fit.
void* host_argument(const ArraySpec& spec, PyObject* given, void* scalar, std::vector<nb::object>& kept,
                    const std::string& program, std::size_t number);
bool is_plain_host_value(PyObject* given);  // a numpy array, or a number of Python's or numpy's

}  // namespace stablexla
