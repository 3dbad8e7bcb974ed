#include "container.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "sha256.h"

namespace stablexla {
namespace {

constexpr std::string_view kMagic = "\x93stablexla\r\n\x1a";
constexpr std::uint16_t kFormat = 1;
constexpr std::size_t kDigest = 32, kStart = kMagic.size() + 2 + 4 + 8 + kDigest;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }
[[noreturn]] void refuse_damaged(const std::string& how) { refuse("it is damaged: " + how); }

template <typename T>
T at(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (char c : bytes)
    for (int shift : {4, 0}) text += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
  return text;
}

std::string_view section_of(std::string_view body, const std::string& name, const Json& place, bool own) {
  const std::size_t offset = place["offset"].size(), size = place["size"].size();
  if (offset > body.size() || size > body.size() - offset) refuse_damaged("it ends too early");
  const std::string_view section = body.substr(offset, size);
  if (!own && hexadecimal(sha256(section)) != place["sha256"].text())
    refuse_damaged("its section '" + name + "' has another checksum");
  return section;
}

}  // namespace

bool is_container(std::string_view bytes) { return bytes.substr(0, kMagic.size()) == kMagic; }

Container read_container(std::string_view bytes, bool own) {
  if (!is_container(bytes)) refuse("these bytes are none");
  if (bytes.size() < kStart) refuse_damaged("it ends too early");
  const auto format = at<std::uint16_t>(bytes, kMagic.size());
  if (format != kFormat) refuse("it has format " + std::to_string(format) + ", and format 1 is read here");
  const auto length = at<std::uint64_t>(bytes, kMagic.size() + 6);
  if (length > bytes.size() - kStart) refuse_damaged("it ends too early");
  const std::string_view text = bytes.substr(kStart, length), digest = bytes.substr(kStart - kDigest, kDigest);
  if (sha256(text) != digest) refuse_damaged("its description has another checksum");
  Container made{Json::parse(text), {}};
  const std::string_view body = bytes.substr(kStart + length);
  for (const auto& [name, place] : made.description["sections"].members())
    made.sections[name] = section_of(body, name, place, own);
  return made;
}

}  // namespace stablexla
