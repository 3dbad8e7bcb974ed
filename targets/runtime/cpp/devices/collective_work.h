// The data movement and reductions of a rendezvous, split into chunks that any thread may process, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "collective.h"
#include "transport.h"

namespace stablexla {

class Work {
 public:
  Work(const Collective& what, const std::vector<int>& group);

  std::int64_t chunks() const { return chunks_; }
  std::int64_t bytes() const { return bytes_; }  // read or written, of all members
  // `members` are those of the group, in its order.
  void run(std::int64_t chunk, const Member* members) const;

 private:
  static constexpr int kAll = -1;

  // A part of an operand that is copied from one member, or reduced over all, to one or all.
  struct Part {
    std::size_t operand;
    int from, to;
    std::int64_t bytes, chunk_bytes;
  };
  // The parts of an operand, of equal length. Their chunks are interleaved: their loads and stores may share cache
  // lines.
  struct Turns {
    std::size_t first_part, parts;
    std::int64_t first_chunk;
  };

  void add(std::size_t operand, int from, int to);
  void move_rows(const Part& part, const Member* members, std::int64_t begin, std::int64_t end) const;
  void move(const Part& part, const Member* members, std::int64_t source, std::int64_t target, std::int64_t bytes) const;
  void copy(const Part& part, const Member* members, std::int64_t source, std::int64_t target, std::int64_t bytes) const;
  void fold(const Part& part, const Member* members, std::int64_t source, std::int64_t target, std::int64_t bytes) const;

  const Collective& what_;
  int members_;
  std::vector<Part> parts_;
  std::vector<Turns> turns_;
  std::int64_t chunks_ = 0, bytes_ = 0;
  bool streams_ = false;  // larger than the caches: non-temporal stores
};

}  // namespace stablexla
