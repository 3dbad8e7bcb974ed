// Python bindings for GPUs.
#pragma once

#include <nanobind/nanobind.h>

namespace stablexla {

void bind_gpu(nanobind::module_& m);

}  // namespace stablexla
