// Protocol buffers, as far as they say on which devices a program runs. As stablexla/pjrt/messages.py.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stablexla::pjrt {

// Numbers of devices by replica and partition, all partitions of the first replica first.
using DeviceNumbers = std::vector<std::size_t>;
// Those of a CompileOptionsProto; the first ones where it names none. Throws Refused for bytes that are none, and for
// another number of replicas or partitions.
DeviceNumbers devices_of(std::string_view options, std::size_t replicas, std::size_t partitions);
std::string assignment_to(const DeviceNumbers& devices, std::size_t partitions);  // a DeviceAssignmentProto

}  // namespace stablexla::pjrt
