// Keys for random numbers: a hash of a seed and a count.
#pragma once

#include <cstdint>

namespace stablexla {

// Mixes the bits, so that keys of neighbouring seeds and counts are uncorrelated (splitmix64, twice).
inline std::uint64_t random_key(std::uint64_t seed, std::uint64_t count) {
  auto stir = [](std::uint64_t bits) {
    bits += 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return bits ^ (bits >> 31);
  };
  return stir(stir(seed) + count * 0x9E3779B97F4A7C15u);
}

}  // namespace stablexla
