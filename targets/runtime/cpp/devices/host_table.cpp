#include "host_table.h"

#include <nanobind/stl/vector.h>

#include <random>
#include <utility>

#include "ffi_call.h"
#include "random_key.h"

namespace stablexla {

HostTable::HostTable(nb::object host_, int num_devices_) : host(std::move(host_)), num_devices(num_devices_) {
  drawn_ = std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(num_devices));
  if (host.is_none()) return;
  std::random_device device;
  seed_ = std::uint64_t(device()) << 32 | device();
  for (nb::handle each : host.attr("callbacks"))
    callbacks.push_back({nb::borrow(each[0]), nb::cast<std::vector<ArraySpec>>(each[1]),
                         nb::cast<std::vector<ArraySpec>>(each[2]),
                         nb::isinstance<FfiCall>(each[0]) ? nb::cast<const FfiCall*>(each[0]) : nullptr});
}

void HostTable::seed(std::uint64_t number) {
  seed_ = number;
  for (int i = 0; i < num_devices; ++i) drawn_[static_cast<std::size_t>(i)] = 0;
}

// Device 0 has the key sequence of a program for one device.
std::uint64_t HostTable::next_random_key(int device) const {
  const std::uint64_t count = drawn_[static_cast<std::size_t>(device)].fetch_add(1);
  return random_key(device == 0 ? seed_.load() : random_key(seed_, ~static_cast<std::uint64_t>(device)), count);
}

}  // namespace stablexla
