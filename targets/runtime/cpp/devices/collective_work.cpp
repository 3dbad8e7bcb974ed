#include "collective_work.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "member_fold.h"
#include "strided_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace stablexla {
namespace {

constexpr std::int64_t kChunk = 128 << 10;     // bytes of one part in a chunk
constexpr std::int64_t kShort = 256;           // shortest run worth a call of memcpy
constexpr std::int64_t kShortChunk = 16 << 10;  // as kChunk for shorter runs, which share cache lines with other parts
constexpr std::int64_t kTile = 8 << 10;        // bytes of a reduction that stay in L1 until all members are combined
constexpr std::int64_t kStreamTile = 4 << 10;   // the same with non-temporal stores
constexpr std::int64_t kStreamFrom = 24 << 20;  // bytes moved; fewer may still be cached when they are read

// Non-temporal stores, which avoid write-allocate. Meanwhile the bytes at `next`, if that is not null, are prefetched:
// else the memory would alternate between reads and writes.
void stream(char* target, const char* source, std::int64_t bytes,
            [[maybe_unused]] const char* next = nullptr) {
#if defined(__x86_64__)
  const std::int64_t head = std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(target) & 15);
  std::memcpy(target, source, static_cast<std::size_t>(head));
  std::int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    if (next != nullptr) _mm_prefetch(next + i, _MM_HINT_T0);
    const auto* from = reinterpret_cast<const __m128i*>(source + i);
    auto* to = reinterpret_cast<__m128i*>(target + i);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(target + i, source + i, static_cast<std::size_t>(bytes - i));
#else
  std::memcpy(target, source, static_cast<std::size_t>(bytes));
#endif
}

// Non-temporal stores need a fence to be ordered with others.
void end_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

inline void copy_run(char* target, const char* source, std::int64_t bytes) {
  switch (bytes) {
    case 1: *target = *source; return;
    case 2: std::memcpy(target, source, 2); return;
    case 4: std::memcpy(target, source, 4); return;
    case 8: std::memcpy(target, source, 8); return;
    case 16: std::memcpy(target, source, 16); return;
    default: std::memmove(target, source, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

Work::Work(const Collective& what, const std::vector<int>& group)
    : what_(what), members_(static_cast<int>(group.size())) {
  const auto position = [&](int device) {
    return static_cast<int>(std::find(group.begin(), group.end(), device) - group.begin());
  };
  for (std::size_t operand = 0; operand < what.operands.size(); ++operand) {
    switch (what.op) {
      case Op::kAllReduce:
        add(operand, kAll, kAll);
        break;
      case Op::kReduceScatter:
        for (int j = 0; j < members_; ++j) add(operand, kAll, j);
        break;
      case Op::kAllGather:
        for (int i = 0; i < members_; ++i) add(operand, i, kAll);
        break;
      case Op::kAllToAll:
        for (int i = 0; i < members_; ++i)
          for (int j = 0; j < members_; ++j) add(operand, i, j);
        break;
      case Op::kPermute:
        for (auto [source, target] : what.pairs)
          if (position(source) < members_) add(operand, position(source), position(target));
        break;
      case Op::kBroadcast:
        add(operand, 0, kAll);
        break;
      case Op::kSend:
      case Op::kRecv:
        break;
    }
  }
  std::int64_t written = 0;
  for (const Part& part : parts_) {
    written += part.bytes * (part.to == kAll ? members_ : 1);
    bytes_ += part.bytes * (part.from == kAll ? members_ : 1);
  }
  bytes_ += written;
  streams_ = bytes_ > kStreamFrom;
}

void Work::add(std::size_t operand, int from, int to) {
  const std::int64_t bytes = what_.operands[operand].layout.bytes();
  if (bytes == 0) return;
  const std::int64_t run = what_.operands[operand].layout.run();
  const std::int64_t chunk = run < kShort ? kShortChunk / run * run : kChunk;
  if (turns_.empty() || parts_.back().operand != operand) turns_.push_back({parts_.size(), 0, chunks_});
  ++turns_.back().parts;
  parts_.push_back({operand, from, to, bytes, chunk});
  chunks_ += (bytes + chunk - 1) / chunk;
}

void Work::run(std::int64_t chunk, const Member* members) const {
  const auto next = std::upper_bound(turns_.begin(), turns_.end(), chunk,
                                     [](std::int64_t c, const Turns& turns) { return c < turns.first_chunk; });
  const Turns& turns = *(next - 1);
  chunk -= turns.first_chunk;
  const auto parts = static_cast<std::int64_t>(turns.parts);
  const Part& part = parts_[turns.first_part + static_cast<std::size_t>(chunk % parts)];
  const Layout& layout = what_.operands[part.operand].layout;
  const std::int64_t begin = chunk / parts * part.chunk_bytes;
  const std::int64_t end = std::min(begin + part.chunk_bytes, part.bytes);
  const std::int64_t first_source = std::max(part.to, 0) * layout.source_step;
  const std::int64_t first_target = std::max(part.from, 0) * layout.target_step;
  const std::int64_t run = layout.run();
  if (run < kShort && layout.extents.size() > 1) {
    move_rows(part, members, begin / run, end / run);
    return;
  }
  const std::size_t outer = layout.extents.size() - 1;
  for (std::int64_t at = begin; at < end;) {
    std::int64_t row = at / run;
    const std::int64_t inside = at - row * run, bytes = std::min(run - inside, end - at);
    std::int64_t source = first_source + inside, target = first_target + inside;
    for (std::size_t i = outer; i-- > 0; row /= layout.extents[i]) {
      const std::int64_t index = row % layout.extents[i];
      source += index * layout.source_strides[i];
      target += index * layout.target_strides[i];
    }
    move(part, members, source, target, bytes);
    at += bytes;
  }
  if (streams_) end_stream();
}

void Work::move_rows(const Part& part, const Member* members, std::int64_t begin, std::int64_t end) const {
  const Layout& layout = what_.operands[part.operand].layout;
  const int first = std::max(part.to, 0), last = part.to == kAll ? members_ : part.to + 1;
  const auto source = [&](int i) {
    char* base = static_cast<char*>(members[i].inputs[part.operand]);
    return Rows{base + std::max(part.to, 0) * layout.source_step, &layout.source_strides};
  };
  const auto put = [&](std::int64_t from, std::int64_t to, Rows rows) {
    for (int j = first; j < last; ++j) {
      char* base = static_cast<char*>(members[j].outputs[part.operand]);
      copy_rows(layout.extents, from, to, {base + std::max(part.from, 0) * layout.target_step, &layout.target_strides},
                rows);
    }
  };
  if (part.from != kAll || members_ == 1) {
    put(begin, end, source(std::max(part.from, 0)));
    return;
  }
  alignas(64) char folded[kTile], block[kTile], next[kTile];  // contiguous rows are combined at once
  const std::int64_t tile = kTile / layout.run();
  const std::int64_t elements = layout.run() / what_.operands[part.operand].element_bytes;
  for (std::int64_t at = begin; at < end; at += tile) {
    const std::int64_t to = std::min(at + tile, end);
    const auto combine = [&](char* total, const char* more) {
      members[0].combine(total, more, total, 0, (to - at) * elements);
    };
    fold_members(
        members_, &folded[0], &block[0],
        [&](int i, char* total) { copy_rows(layout.extents, at, to, {total}, source(i)); },
        [&](char* total, int i) {
          copy_rows(layout.extents, at, to, {next}, source(i));
          combine(total, next);
        },
        combine);
    put(at, to, {folded});
  }
}

void Work::move(const Part& part, const Member* members, std::int64_t source, std::int64_t target,
                std::int64_t bytes) const {
  if (part.from == kAll && members_ > 1)
    fold(part, members, source, target, bytes);
  else
    copy(part, members, source, target, bytes);
}

void Work::copy(const Part& part, const Member* members, std::int64_t source, std::int64_t target,
                std::int64_t bytes) const {
  const char* from = static_cast<const char*>(members[std::max(part.from, 0)].inputs[part.operand]) + source;
  const int first = std::max(part.to, 0), last = part.to == kAll ? members_ : part.to + 1;
  for (int j = first; j < last; ++j) {
    char* to = static_cast<char*>(members[j].outputs[part.operand]) + target;
    if (to == from) continue;
    if (streams_ && bytes >= 256)
      stream(to, from, bytes);
    else
      copy_run(to, from, bytes);
  }
}

void Work::fold(const Part& part, const Member* members, std::int64_t source, std::int64_t target,
                std::int64_t bytes) const {
  alignas(64) char scratch[kStreamTile], block[kTile];
  const std::int64_t width = what_.operands[part.operand].element_bytes;
  const Combine combine = members[0].combine;
  const int first = std::max(part.to, 0), last = part.to == kAll ? members_ : part.to + 1;
  const auto input = [&](int i) { return static_cast<const char*>(members[i].inputs[part.operand]) + source; };
  const auto output = [&](int j) { return static_cast<char*>(members[j].outputs[part.operand]) + target; };
  const std::int64_t most = streams_ ? kStreamTile : kTile;
  for (std::int64_t at = 0; at < bytes; at += most) {
    const std::int64_t tile = std::min(most, bytes - at);
    const bool is_last = bytes - at < 2 * most;
    char* folded = streams_ ? scratch : output(first) + at;
    const char* alone = nullptr;  // a block of one member, which need not be copied
    fold_members(
        members_, folded, &block[0], [&](int i, char*) { alone = input(i) + at; },
        [&](char* total, int i) {
          combine(alone != nullptr ? alone : total, input(i) + at, total, 0, tile / width);
          alone = nullptr;
        },
        [&](char* total, char* more) {
          combine(total, alone != nullptr ? alone : more, total, 0, tile / width);
        });
    for (int j = first; j < last; ++j) {
      if (streams_)
        stream(output(j) + at, folded, tile, is_last ? nullptr : input(j) + at + most);
      else if (j != first)
        std::memcpy(output(j) + at, folded, static_cast<std::size_t>(tile));
    }
  }
}

}  // namespace stablexla
