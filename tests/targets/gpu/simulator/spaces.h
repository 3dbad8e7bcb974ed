// Where the windows of shared, local and parameter memory lie among generic addresses.
#pragma once

#include <cstdint>

namespace simulator {

constexpr std::uint64_t kWindow = 1ull << 32;
constexpr std::uint64_t kSharedWindow = 256 * kWindow, kLocalWindow = 257 * kWindow, kParamWindow = 258 * kWindow;
constexpr std::int64_t kReservedShared = 1024;  // what the system keeps at the begin of a block's shared memory

inline std::int64_t align_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace simulator
