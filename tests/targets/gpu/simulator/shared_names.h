// Words that several families share: `add` is of integers, of f32 and of f16. Each answers whether the rest is its own.
#pragma once

#include "decode.h"

namespace simulator {

bool integer_sum(Decode& d, bool subtract);
bool integer_product(Decode& d);
bool integer_quotient(Decode& d);
bool integer_extreme(Decode& d, bool largest);
bool integer_sign(Decode& d, bool absolute);
bool small_float(Decode& d);     // f16, bf16 and pairs of them
bool small_function(Decode& d);  // approximate functions of these

}  // namespace simulator
