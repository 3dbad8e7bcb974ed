// The binding of the PJRT table.
#pragma once

#include <nanobind/nanobind.h>

namespace stablexla::pjrt {

void bind(nanobind::module_& m);

}  // namespace stablexla::pjrt
