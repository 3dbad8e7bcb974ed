// A device: its chip, and memory at addresses that the host cannot touch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks.h"

namespace simulator {

struct Allocation {
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  bool live = true;
  std::uint8_t* data = nullptr;
  std::vector<std::uint8_t> valid;  // of each byte, whether it was ever written
  Shadow shadow;
  int grain = 0;
};

class DeviceMemory {
 public:
  DeviceMemory();
  // 0 when there is no more.
  std::uint64_t allocate(std::size_t bytes);
  bool release(std::uint64_t address);
  // The allocation that an address is in or behind, also one that was given back.
  Allocation* find(std::uint64_t address);
  std::uint8_t* data(std::uint64_t address) { return backing_ + (address - window_); }
  bool inside(std::uint64_t address) const { return address - window_ < kBytes; }
  std::size_t allocated() const { return allocated_; }
  std::size_t largest() const { return largest_; }
  void reset();

  std::size_t limit = std::size_t(80) << 30;

 private:
  static constexpr std::size_t kBytes = std::size_t(1) << 40;
  std::uint64_t window_ = 0, next_ = 0;
  std::uint8_t* backing_ = nullptr;
  std::map<std::uint64_t, Allocation> all_;
  Allocation* last_ = nullptr;
  std::size_t allocated_ = 0, largest_ = 0;
};

struct Device {
  int ordinal = 0;
  DeviceMemory memory;
  // Of the running launch: what blocks released at an address, and what a block knows of others: a stamp for each warp.
  std::map<std::uint64_t, std::map<std::uint32_t, std::vector<std::uint32_t>>> released;
  std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::uint32_t>>> acquired;  // [block][other]
};

}  // namespace simulator
