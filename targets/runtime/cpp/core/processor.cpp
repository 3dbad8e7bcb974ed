#include "processor.h"

#include <sys/auxv.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace stablexla {

std::set<std::string> flags_of_words(std::uint64_t first, std::uint64_t second) {
  // Of asm/hwcap.h, by bit; dashes for what is of no use here.
  constexpr const char* kNames[] = {
      "fp asimd - aes pmull sha1 sha2 crc32 atomics fphp asimdhp - asimdrdm jscvt fcma lrcpc - sha3 sm3 sm4 asimddp "
      "sha512 sve asimdfhm - uscat ilrcpc flagm",
      "- sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16"};
  std::uint64_t words[] = {first, second};
  std::set<std::string> found;
  for (int i = 0; i < 2; ++i) {
    std::istringstream names(kNames[i]);
    for (std::string name; names >> name; words[i] >>= 1)
      if ((words[i] & 1) != 0 && name != "-") found.insert(name);
  }
  return found;
}

std::set<std::string> processor_flags() {
#if defined(__aarch64__)
  return flags_of_words(getauxval(16), getauxval(26));  // /proc/cpuinfo is the host's under an emulator
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
#endif
}

}  // namespace stablexla
