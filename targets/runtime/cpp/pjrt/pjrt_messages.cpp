#include "pjrt_messages.h"

#include <cstdint>
#include <vector>

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

}  // namespace

// By CompileOptionsProto, ExecutableBuildOptionsProto, DeviceAssignmentProto, its row.
std::size_t device_of(std::string_view options) {
  for (Field field : fields_of(message_in(message_in(message_in(options, 3), 9), 3)))
    if (field.number == 1) return field.data.empty() ? field.value : take_varint(field.data);
  return 0;
}

std::string assignment_to(std::size_t device) {
  std::string id;
  for (; device > 0x7F; device >>= 7) id += static_cast<char>(0x80 | (device & 0x7F));
  id += static_cast<char>(device);
  const auto size = static_cast<char>(id.size());
  return std::string{8, 1, 16, 1, 26, static_cast<char>(size + 2), 10, size} + id;
}

}  // namespace stablexla::pjrt
