// Features of the processor that this process runs on, by Linux's names.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace stablexla {

std::set<std::string> processor_flags();  // none where the system does not say
// Those of AArch64, in the words AT_HWCAP and AT_HWCAP2 of the auxiliary vector.
std::set<std::string> flags_of_words(std::uint64_t first, std::uint64_t second);

}  // namespace stablexla
