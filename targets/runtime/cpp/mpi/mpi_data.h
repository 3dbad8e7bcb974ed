// Data movement and reductions of a collective between processes.
//
// A reduction is bit-identical to that in one process: every element is combined from left to right in the group's
// order, by the program's own combiner. MPI's reductions leave the order open, so that only point-to-point messages are
// used. Large arrays: reduce-scatter and all-gather of slices; small ones every process reduces whole: one exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "collective.h"
#include "mpi_messages.h"
#include "transport.h"

namespace stablexla {

// A group as seen from this process. Ranks are those in the communicator.
struct MpiGroup {
  struct Seat {
    int device = 0, rank = 0;
    const Member* here = nullptr;  // null in another process
  };

  std::vector<Seat> seats;  // in the group's order
  std::vector<int> ranks;   // each once
  int me = 0;               // this process's place in these

  int size() const { return static_cast<int>(ranks.size()); }
  int rank(int place) const { return ranks[static_cast<std::size_t>(place)]; }
};

class MpiData {
 public:
  MpiData(const Collective& what, const MpiGroup& group, MpiMessages& messages, MpiWait& wait)
      : what_(what), group_(group), messages_(messages), wait_(wait) {}

  bool run();  // false when the wait was given up

 private:
  // A slice that this process reduces: elements of an array of which every member has one of equal shape.
  struct Task {
    char* out = nullptr;
    std::int64_t elements = 0;
    std::vector<const char*> inputs;  // for each seat; null where it is received
  };
  // A slice it sends for others to reduce.
  struct Part {
    int rank = 0;
    const char* data = nullptr;
    std::int64_t elements = 0;
  };

  bool move(std::size_t operand);
  bool all_reduce(std::size_t operand);
  bool reduce_whole(std::size_t operand);
  bool reduce_slices(std::size_t operand);
  bool reduce_scatter(std::size_t operand);
  template <typename Then>
  bool fold_tasks(const std::vector<Task>& tasks, const std::vector<Part>& parts, std::int64_t element_bytes,
                  Then then);
  void fold(const std::vector<const char*>& inputs, char* out, std::int64_t elements, std::int64_t element_bytes) const;
  bool moves(std::size_t from, std::size_t to) const;
  void copy_results(std::size_t operand, std::int64_t begin, std::int64_t bytes) const;
  const Member& first() const;

  const Collective& what_;
  const MpiGroup& group_;
  MpiMessages& messages_;
  MpiWait& wait_;
};

}  // namespace stablexla
