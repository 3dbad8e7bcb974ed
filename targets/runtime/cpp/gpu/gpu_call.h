// State of one call of a GPU program: its arguments' locations, and its memory.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "gpu_function.h"

namespace stablexla::gpu {

constexpr std::size_t kSmallArgument = 64 << 10;  // up to this, arguments are copied together, through pinned memory

// Memory of a call, freed at its end.
struct Scratch {
  cuda::Address address = 0;
  std::size_t bytes = 0;
  StreamRef home, stream;

  void take(Device& device, const std::string& purpose) { address = device.memory().take(bytes, *home, purpose); }
  ~Scratch() {
    if (address == 0 || bytes == 0) return;
    try {
      ContextScope scope(home->device);
      home->wait_for(*stream);
      home->device.memory().give(address, bytes, home);
    } catch (const Error&) {
      // the context is lost
    }
  }
};

struct Function::Argument {
  std::optional<int> device;         // its location; unset for the host
  BlockRef block;                    // of one of our arrays
  nb::object owner;                  // of a foreign array
  cuda::Address address = 0;         // on the device
  bool is_read_only = false;
  const void* host = nullptr;        // on the host
  std::optional<std::size_t> copied_to;  // offset in the scratch memory
  std::array<char, kScalarBytes> scalar;
};

struct Function::Call {
  Device* device = nullptr;
  StreamRef stream, home;
  LoadedProgram* program = nullptr;
  bool is_on_device = false;  // so are its results
  std::vector<Argument> arguments;
  std::vector<nb::object> kept;     // conversions of arguments, kept alive
  std::vector<MomentRef> awaited;  // events to wait for before any access
  std::size_t arena_offset = 0, small_offset = 0, small_bytes = 0, results_offset = 0, results_bytes = 0, bytes = 0;
  std::vector<std::size_t> result_offsets;
  std::vector<BlockRef> results;       // on the device
  std::vector<nb::object> host_results;  // else
  std::vector<void*> host_data;
  std::vector<void*> data, packed;
  MomentRef copied;  // from then on large host arguments may change
  MomentRef end;
};

}  // namespace stablexla::gpu
