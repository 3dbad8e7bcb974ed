// The file format of saved programs (container.py), read without Python: a description and sections with checksums.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "json.h"

namespace stablexla {

struct Container {
  Json description;
  std::map<std::string, std::string_view> sections;  // in the bytes that were read
};

// Throws std::runtime_error for bytes that are no such file, are of another format, or damaged. Checksums of sections are
// not computed for `own` bytes, which come from a process that this one started. A signature is not looked at.
Container read_container(std::string_view bytes, bool own);

bool is_container(std::string_view bytes);  // whether they begin as such a file

}  // namespace stablexla
