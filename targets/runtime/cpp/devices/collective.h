// A collective as the compiler describes it: its groups of participants, and which bytes move where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "json.h"

namespace stablexla {

// out[i] = computation(a[i], b[i]) for the elements i of [lo, hi); `out` may be `a`.
using Combine = void (*)(const void* a, const void* b, void* out, std::int64_t lo, std::int64_t hi);

// Offsets of the part that member i sends to member j: j * source_step in the input of i, and i * target_step in the
// output of j. All in bytes, but the extents; the last one is a run of bytes that is contiguous on both sides.
struct Layout {
  std::vector<std::int64_t> extents, source_strides, target_strides;
  std::int64_t source_step = 0, target_step = 0;

  std::int64_t bytes() const;  // of the part
  std::int64_t run() const { return extents.empty() ? 1 : extents.back(); }
};

// One array of a collective.
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

// A device's group, and its position in it. Without a group it does not participate.
struct Seat {
  int group = -1, position = -1;
};

class Collective {
 public:
  // From the compiler's configuration. Throws std::runtime_error for values of another kind, and std::invalid_argument
  // where the numbers do not fit together.
  Collective(std::int64_t number, const Json& config, int num_devices);

  std::int64_t number;  // in the program's list
  Op op;
  std::string name, place;  // the operation's name, and its location in the user's program
  std::vector<std::vector<int>> groups;  // of a permute: the connected components of its pairs
  std::vector<std::pair<int, int>> pairs;
  std::int64_t channel = 0;
  std::vector<Operand> operands;

  bool is_message() const { return op == Op::kSend || op == Op::kRecv; }
  bool is_fold() const { return op == Op::kAllReduce || op == Op::kReduceScatter; }
  Seat seat(int device) const;
  // Whether no device sends to this one, so that its outputs are zeros.
  bool gets_nothing(int device) const;
  std::string text() const;    // its name and place
  std::uint64_t hash() const;  // of all parameters that devices must agree on

 private:
  void join_pairs();
  void check_layouts() const;
  std::vector<Seat> seats_;
  std::vector<bool> gets_;
};

}  // namespace stablexla
