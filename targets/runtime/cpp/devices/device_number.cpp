#include "device_number.h"

namespace stablexla {

thread_local std::int64_t device_number = 0;

}  // namespace stablexla

extern "C" std::int64_t stablexla_device_id() { return stablexla::device_number; }
