// The Python face of what runs over MPI.
#pragma once

#include <nanobind/nanobind.h>

namespace stablexla {

void bind_mpi(nanobind::module_& module);

}  // namespace stablexla
