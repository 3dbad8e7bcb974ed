// What devices of a program do together, as the compiler describes it: who takes part, and which bytes go where.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stablexla {

// out[i] = computation(a[i], b[i]) for the elements i of [lo, hi); `out` may be `a`.
using Combine = void (*)(const void* a, const void* b, void* out, std::int64_t lo, std::int64_t hi);

// Where the part of member i that goes to member j lies: at j * source_step in the input of i, and at i * target_step
// in the output of j. All in bytes, but the extents; the last one is a run of bytes that lie together on both sides.
struct Layout {
  std::vector<std::int64_t> extents, source_strides, target_strides;
  std::int64_t source_step = 0, target_step = 0;

  std::int64_t bytes() const;  // of the part
  std::int64_t run() const { return extents.empty() ? 1 : extents.back(); }
};

// One array that takes part.
struct Operand {
  std::string input_type, output_type;
  std::int64_t element_bytes = 1, input_bytes = 0, output_bytes = 0;
  Layout layout;
};

enum class Op {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kPermute,
  kBroadcast,
  kSend,
  kRecv,
};

// A device's place: in which group, and where in it. Without a group it takes no part.
struct Seat {
  int group = -1, position = -1;
};

class Collective {
 public:
  // From the compiler's configuration, a mapping of plain values. Throws nb::python_error, or nb::value_error where
  // the numbers do not fit together.
  Collective(std::int64_t number, nanobind::handle config);

  std::int64_t number;  // in the program's list
  Op op;
  std::string name, place;  // the operation's, and where it is in the user's program
  std::vector<std::vector<int>> groups;  // of a permute: the devices that are joined by its pairs
  std::vector<std::pair<int, int>> pairs;
  std::int64_t channel = 0;
  std::vector<Operand> operands;

  bool is_message() const { return op == Op::kSend || op == Op::kRecv; }
  bool is_fold() const { return op == Op::kAllReduce || op == Op::kReduceScatter; }
  Seat seat(int device) const;
  // Whether the device's outputs are filled by nobody, so that they are zeros.
  bool gets_nothing(int device) const;
  std::uint64_t hash() const;  // of all that devices must agree on

 private:
  void join_pairs();
  void check_layouts() const;
  std::vector<Seat> seats_;
  std::vector<bool> gets_;
};

}  // namespace stablexla
