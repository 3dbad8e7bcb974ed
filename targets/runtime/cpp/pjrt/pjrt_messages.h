// Protocol buffers, as far as they say on which device a program runs. As stablexla/pjrt/messages.py.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stablexla::pjrt {

// The number of the one device of a CompileOptionsProto. Throws Refused for bytes that are none.
std::size_t device_of(std::string_view options);
std::string assignment_to(std::size_t device);  // a DeviceAssignmentProto for one replica and one partition

}  // namespace stablexla::pjrt
