#include "pjrt_messages.h"

#include <cstdint>
#include <numeric>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

namespace {

struct Field {
  std::uint64_t number, value;
  std::string_view data;
};

std::uint64_t take_varint(std::string_view& message) {
  std::uint64_t made = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (message.empty()) throw Refused(kInvalidArgument, "compile options that end too early");
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    made |= std::uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) return made;
  }
  throw Refused(kInvalidArgument, "compile options with a number of more than 64 bits");
}

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> found;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Field field{key >> 3, 0, {}};
    std::size_t size = 0;
    switch (key & 7) {
      case 0: field.value = take_varint(message); break;
      case 1: size = 8; break;
      case 2: size = take_varint(message); break;
      case 5: size = 4; break;
      default: throw Refused(kInvalidArgument, "compile options that are no message");
    }
    if (size > message.size()) throw Refused(kInvalidArgument, "compile options that end too early");
    field.data = message.substr(0, size);
    message.remove_prefix(size);
    found.push_back(field);
  }
  return found;
}

std::string_view message_in(std::string_view message, std::uint64_t number) {
  std::string_view found;
  for (const Field& field : fields_of(message))
    if (field.number == number) found = field.data;
  return found;
}

std::string varint(std::size_t value) {
  std::string made;
  for (; value > 0x7F; value >>= 7) made += static_cast<char>(0x80 | (value & 0x7F));
  return made + static_cast<char>(value);
}

// A field of bytes.
std::string field(char number, const std::string& data) {
  return static_cast<char>(number << 3 | 2) + varint(data.size()) + data;
}

}  // namespace

// By CompileOptionsProto, ExecutableBuildOptionsProto, DeviceAssignmentProto, its rows: one for each partition.
DeviceNumbers devices_of(std::string_view options, std::size_t replicas, std::size_t partitions) {
  std::vector<DeviceNumbers> rows;
  for (const Field& row : fields_of(message_in(message_in(options, 3), 9))) {
    if (row.number != 3) continue;
    rows.emplace_back();
    for (Field field : fields_of(row.data)) {
      if (field.number != 1) continue;
      if (field.data.empty()) rows.back().push_back(field.value);
      while (!field.data.empty()) rows.back().push_back(take_varint(field.data));
    }
  }
  DeviceNumbers devices(replicas * partitions);
  std::iota(devices.begin(), devices.end(), 0);
  if (rows.empty()) return devices;
  for (std::size_t partition = 0; partition < partitions; ++partition)
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      if (rows.size() != partitions || rows[partition].size() != replicas)
        throw Refused(kInvalidArgument, "compile options for other devices than " + std::to_string(replicas) +
                                            " replicas of " + std::to_string(partitions) + " partitions");
      devices[replica * partitions + partition] = rows[partition][replica];
    }
  return devices;
}

std::string assignment_to(const DeviceNumbers& devices, std::size_t partitions) {
  std::string made = "\x08" + varint(devices.size() / partitions) + "\x10" + varint(partitions);
  for (std::size_t partition = 0; partition < partitions; ++partition) {
    std::string row;
    for (std::size_t i = partition; i < devices.size(); i += partitions) row += varint(devices[i]);
    made += field(3, field(1, row));
  }
  return made;
}

}  // namespace stablexla::pjrt
