// SHA-256, as FIPS 180-4 has it.
#pragma once

#include <string>
#include <string_view>

namespace stablexla {

std::string sha256(std::string_view bytes);  // 32 bytes

}  // namespace stablexla
