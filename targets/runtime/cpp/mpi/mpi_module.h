// Python bindings of the MPI transport.
#pragma once

#include <nanobind/nanobind.h>

namespace stablexla {

void bind_mpi(nanobind::module_& module);

}  // namespace stablexla
