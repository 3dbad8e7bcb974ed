#include "mpi_data.h"

#include <algorithm>
#include <cstring>

#include "member_fold.h"
#include "strided_copy.h"

namespace stablexla {
namespace {

constexpr std::int64_t kWhole = 256 << 10;       // bytes to send each way below which every process reduces all
constexpr std::int64_t kChunk = 512 << 10;       // of one member, reduced at once
constexpr std::int64_t kFoldBytes = 16 << 10;    // tile that stays in L1 from member to member
constexpr int kAhead = 2;                        // chunks in flight
constexpr int kInputs = 0, kResults = 1;         // stages of messages

using Numbers = std::vector<std::int64_t>;

bool is_packed(const Numbers& extents, const Numbers& strides) {
  std::int64_t size = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] != 1 && strides[i] != size) return false;
    size *= extents[i];
  }
  return true;
}

// Without strides a side is packed.
void copy(const Layout& layout, char* target, const Numbers* to, const char* source, const Numbers* from) {
  if (source != target && layout.bytes() != 0)
    copy_rows(layout.extents, 0, layout.bytes() / layout.run(), {target, to}, {const_cast<char*>(source), from});
}

std::int64_t parts_of(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

}  // namespace

bool MpiData::run() {
  for (std::size_t operand = 0; operand < what_.operands.size(); ++operand) {
    const bool done = what_.op == Op::kAllReduce       ? all_reduce(operand)
                      : what_.op == Op::kReduceScatter ? reduce_scatter(operand)
                                                       : move(operand);
    if (!done) return false;
  }
  return messages_.finish(wait_);
}

const Member& MpiData::first() const {
  return *std::find_if(group_.seats.begin(), group_.seats.end(), [](auto& seat) { return seat.here != nullptr; })->here;
}

// Whether one member sends a part to the other, both by position in the group.
bool MpiData::moves(std::size_t from, std::size_t to) const {
  if (what_.op == Op::kBroadcast) return from == 0;
  if (what_.op != Op::kPermute) return true;
  const std::pair<int, int> pair(group_.seats[from].device, group_.seats[to].device);
  return std::find(what_.pairs.begin(), what_.pairs.end(), pair) != what_.pairs.end();
}

// Parts that all members receive alike are sent once to each process.
bool MpiData::move(std::size_t operand) {
  const Layout& layout = what_.operands[operand].layout;
  const bool once = layout.source_step == 0 && what_.op != Op::kPermute;
  const bool reads_packed = is_packed(layout.extents, layout.source_strides);
  const bool writes_packed = is_packed(layout.extents, layout.target_strides);
  const std::int64_t bytes = layout.bytes();
  const auto& seats = group_.seats;
  const auto source = [&](std::size_t from, std::size_t to) {
    const auto* input = static_cast<const char*>(seats[from].here->inputs[operand]);
    return input + static_cast<std::int64_t>(to) * layout.source_step;
  };
  const auto target = [&](std::size_t from, std::size_t to) {
    return static_cast<char*>(seats[to].here->outputs[operand]) + static_cast<std::int64_t>(from) * layout.target_step;
  };

  struct Arrival {
    std::size_t from, to, begin, end;  // of its messages
    const char* room;
  };
  std::vector<Arrival> arrivals;
  for (std::size_t to = 0; to < seats.size(); ++to) {
    if (seats[to].here == nullptr) continue;
    for (std::size_t from = 0; from < seats.size(); ++from) {
      if (seats[from].here != nullptr || !moves(from, to)) continue;
      const auto known =
          std::find_if(arrivals.begin(), arrivals.end(), [&](auto& a) { return once && a.from == from; });
      if (known != arrivals.end()) {
        arrivals.push_back({from, to, known->begin, known->end, known->room});
        continue;
      }
      char* room = writes_packed ? target(from, to) : messages_.room(static_cast<std::size_t>(bytes));
      const std::size_t begin = messages_.count();
      messages_.receive(seats[from].rank, room, bytes);
      arrivals.push_back({from, to, begin, messages_.count(), room});
    }
  }
  // In receiving order: by target, then by source.
  std::vector<std::pair<std::size_t, int>> gone;
  for (std::size_t to = 0; to < seats.size(); ++to) {
    if (seats[to].here != nullptr) continue;
    for (std::size_t from = 0; from < seats.size(); ++from) {
      if (seats[from].here == nullptr || !moves(from, to)) continue;
      const std::pair<std::size_t, int> way(from, seats[to].rank);
      if (once && std::find(gone.begin(), gone.end(), way) != gone.end()) continue;
      gone.push_back(way);
      const char* data = source(from, to);
      if (!reads_packed) {
        char* room = messages_.room(static_cast<std::size_t>(bytes));
        copy(layout, room, nullptr, data, &layout.source_strides);
        data = room;
      }
      messages_.send(seats[to].rank, data, bytes);
    }
  }
  for (std::size_t to = 0; to < seats.size(); ++to)
    for (std::size_t from = 0; from < seats.size(); ++from)
      if (seats[from].here != nullptr && seats[to].here != nullptr && moves(from, to))
        copy(layout, target(from, to), &layout.target_strides, source(from, to), &layout.source_strides);
  for (const Arrival& arrival : arrivals) {
    if (!messages_.finish(arrival.begin, arrival.end, wait_)) return false;
    copy(layout, target(arrival.from, arrival.to), &layout.target_strides, arrival.room, nullptr);
  }
  return true;
}

// Cache-blocked: in tiles that stay in L1.
void MpiData::fold(const std::vector<const char*>& inputs, char* out, std::int64_t elements,
                   std::int64_t element_bytes) const {
  const Combine combine = first().combine;
  const std::int64_t tile = std::max<std::int64_t>(64, kFoldBytes / element_bytes / 64 * 64);
  const int members = static_cast<int>(inputs.size());
  std::vector<char> block(members > kFoldBlock ? static_cast<std::size_t>(tile * element_bytes) : 0);
  for (std::int64_t begin = 0; begin < elements; begin += tile) {
    const std::int64_t count = std::min(elements, begin + tile) - begin, at = begin * element_bytes;
    const char* alone = nullptr;  // a block of one member, which need not be copied
    fold_members(
        members, out + at, block.data(), [&](int i, char*) { alone = inputs[static_cast<std::size_t>(i)] + at; },
        [&](char* total, int i) {
          const char* more = inputs[static_cast<std::size_t>(i)] + at;
          combine(alone != nullptr ? alone : total, more, total, 0, count);
          alone = nullptr;
        },
        [&](char* total, char* more) { combine(total, alone != nullptr ? alone : more, total, 0, count); });
  }
}

void MpiData::copy_results(std::size_t operand, std::int64_t begin, std::int64_t bytes) const {
  const Member& from = first();
  for (const auto& seat : group_.seats)
    if (seat.here != nullptr && seat.here != &from)
      std::memcpy(static_cast<char*>(seat.here->outputs[operand]) + begin,
                  static_cast<const char*>(from.outputs[operand]) + begin, static_cast<std::size_t>(bytes));
}

bool MpiData::all_reduce(std::size_t operand) {
  const std::int64_t bytes = what_.operands[operand].input_bytes;
  return bytes * (group_.size() - 1) <= kWhole ? reduce_whole(operand) : reduce_slices(operand);
}

bool MpiData::reduce_whole(std::size_t operand) {
  const std::int64_t bytes = what_.operands[operand].input_bytes;
  const std::int64_t element_bytes = what_.operands[operand].element_bytes;
  const std::size_t begin = messages_.count();
  std::vector<const char*> inputs;
  for (const auto& seat : group_.seats) {
    if (seat.here != nullptr) {
      inputs.push_back(static_cast<const char*>(seat.here->inputs[operand]));
      continue;
    }
    char* room = messages_.room(static_cast<std::size_t>(bytes));
    messages_.receive(seat.rank, room, bytes);
    inputs.push_back(room);
  }
  const std::size_t end = messages_.count();
  for (const auto& seat : group_.seats)
    if (seat.here != nullptr)
      for (int place = 0; place < group_.size(); ++place)
        if (place != group_.me) messages_.send(group_.rank(place), seat.here->inputs[operand], bytes);
  if (!messages_.finish(begin, end, wait_)) return false;
  fold(inputs, static_cast<char*>(first().outputs[operand]), bytes / element_bytes, element_bytes);
  copy_results(operand, 0, bytes);
  return true;
}

// Pipelined: chunks of the tasks are received while earlier ones are reduced; then(begin, end) gets the range of
// elements that have arrived.
template <typename Then>
bool MpiData::fold_tasks(const std::vector<Task>& tasks, const std::vector<Part>& parts, std::int64_t element_bytes,
                         Then then) {
  const std::int64_t step = std::max<std::int64_t>(64, kChunk / element_bytes / 64 * 64);
  std::int64_t longest = 0;
  for (const Task& task : tasks) longest = std::max(longest, task.elements);
  for (const Part& part : parts) longest = std::max(longest, part.elements);
  const std::size_t seats = group_.seats.size();
  std::vector<char*> rooms;
  std::size_t remote = 0;
  for (const Task& task : tasks)
    remote += static_cast<std::size_t>(std::count(task.inputs.begin(), task.inputs.end(), nullptr));
  const std::int64_t room_bytes = std::min(step, longest) * element_bytes;
  for (std::size_t i = 0; i < remote * kAhead && longest > 0; ++i)
    rooms.push_back(messages_.room(static_cast<std::size_t>(room_bytes)));

  std::vector<std::pair<std::size_t, std::size_t>> receives(kAhead);
  const auto post = [&](std::int64_t begin) {
    const auto slot = static_cast<std::size_t>(begin / step) % kAhead;
    std::size_t room = slot * remote;
    receives[slot].first = messages_.count();
    for (const Task& task : tasks)
      for (std::size_t i = 0; i < seats; ++i) {
        if (task.inputs[i] != nullptr) continue;
        char* place = rooms[room++];
        const std::int64_t elements = std::min(step, task.elements - begin);
        if (elements > 0) messages_.receive(group_.seats[i].rank, place, elements * element_bytes, kInputs);
      }
    receives[slot].second = messages_.count();
    for (const Part& part : parts) {
      const std::int64_t elements = std::min(step, part.elements - begin);
      if (elements > 0)
        messages_.send(part.rank, part.data + begin * element_bytes, elements * element_bytes, kInputs);
    }
  };
  for (std::int64_t ahead = 0; ahead < kAhead && ahead * step < longest; ++ahead) post(ahead * step);
  std::vector<const char*> inputs(seats);
  for (std::int64_t begin = 0; begin < longest; begin += step) {
    const auto slot = static_cast<std::size_t>(begin / step) % kAhead;
    if (!messages_.finish(receives[slot].first, receives[slot].second, wait_)) return false;
    std::size_t room = slot * remote;
    for (const Task& task : tasks) {
      for (std::size_t i = 0; i < seats; ++i)
        inputs[i] = task.inputs[i] != nullptr ? task.inputs[i] + begin * element_bytes : rooms[room++];
      const std::int64_t elements = std::min(step, task.elements - begin);
      if (elements > 0) fold(inputs, task.out + begin * element_bytes, elements, element_bytes);
    }
    then(begin, std::min(longest, begin + step));
    if (begin + kAhead * step < longest) post(begin + kAhead * step);
  }
  return true;
}

// Reduce-scatter and all-gather: every process reduces a slice, and sends it to all.
bool MpiData::reduce_slices(std::size_t operand) {
  const std::int64_t element_bytes = what_.operands[operand].element_bytes;
  const std::int64_t elements = what_.operands[operand].input_bytes / element_bytes;
  const std::int64_t slice = parts_of(parts_of(elements, group_.size()), 64) * 64;
  const auto bound = [&](int place) { return std::min(elements, place * slice); };
  char* out = static_cast<char*>(first().outputs[operand]);

  Task task;
  const std::int64_t mine = bound(group_.me);
  task.out = out + mine * element_bytes;
  task.elements = bound(group_.me + 1) - mine;
  std::vector<Part> parts;
  for (const auto& seat : group_.seats) {
    const auto* input = seat.here == nullptr ? nullptr : static_cast<const char*>(seat.here->inputs[operand]);
    task.inputs.push_back(input == nullptr ? nullptr : input + mine * element_bytes);
  }
  for (const auto& seat : group_.seats) {
    if (seat.here == nullptr) continue;
    for (int i = 1; i < group_.size(); ++i) {
      const int place = (group_.me + i) % group_.size();
      const std::int64_t begin = bound(place);
      parts.push_back({group_.rank(place), static_cast<const char*>(seat.here->inputs[operand]) + begin * element_bytes,
                       bound(place + 1) - begin});
    }
  }
  const std::int64_t step = std::max<std::int64_t>(64, kChunk / element_bytes / 64 * 64);
  std::vector<std::pair<std::size_t, std::size_t>> results;
  for (std::int64_t begin = 0; begin < slice; begin += step)
    for (int place = 0; place < group_.size(); ++place) {
      const std::int64_t from = bound(place) + begin;
      const std::int64_t count = std::min(step, bound(place + 1) - from);
      if (place != group_.me && count > 0)
        messages_.receive(group_.rank(place), out + from * element_bytes, count * element_bytes, kResults);
    }
  const auto tell = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = std::min(end, task.elements) - begin;
    for (int i = 1; i < group_.size() && count > 0; ++i)
      messages_.send(group_.rank((group_.me + i) % group_.size()), task.out + begin * element_bytes, count * element_bytes,
                     kResults);
  };
  if (!fold_tasks({task}, parts, element_bytes, tell) || !messages_.finish(wait_)) return false;
  copy_results(operand, 0, elements * element_bytes);
  return true;
}

bool MpiData::reduce_scatter(std::size_t operand) {
  const Operand& array = what_.operands[operand];
  const Layout& layout = array.layout;
  const std::int64_t bytes = layout.bytes(), elements = bytes / array.element_bytes;
  const bool reads_packed = is_packed(layout.extents, layout.source_strides);
  const auto data = [&](std::size_t from, std::size_t to) -> const char* {
    const char* place = static_cast<const char*>(group_.seats[from].here->inputs[operand]) +
                        static_cast<std::int64_t>(to) * layout.source_step;
    if (reads_packed) return place;
    char* room = messages_.room(static_cast<std::size_t>(bytes));
    copy(layout, room, nullptr, place, &layout.source_strides);
    return room;
  };
  std::vector<Task> tasks;
  std::vector<Part> parts;
  for (std::size_t to = 0; to < group_.seats.size(); ++to) {
    const auto& seat = group_.seats[to];
    Task task{seat.here != nullptr ? static_cast<char*>(seat.here->outputs[operand]) : nullptr, elements, {}};
    for (std::size_t from = 0; from < group_.seats.size(); ++from) {
      const char* own = group_.seats[from].here != nullptr ? data(from, to) : nullptr;
      if (seat.here != nullptr) task.inputs.push_back(own);
      else if (own != nullptr) parts.push_back({seat.rank, own, elements});
    }
    if (seat.here != nullptr) tasks.push_back(std::move(task));
  }
  return fold_tasks(tasks, parts, array.element_bytes, [](std::int64_t, std::int64_t) {});
}

}  // namespace stablexla
