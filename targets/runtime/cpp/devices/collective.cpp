#include "collective.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace stablexla {

namespace {

constexpr const char* kNames[] = {"all_reduce",         "reduce_scatter",       "all_gather", "all_to_all",
                                  "collective_permute", "collective_broadcast", "send",       "recv"};

Op op_of(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Op>(i);
  throw std::invalid_argument("there is no collective " + name);
}

// Number of elements of an array type such as f32[2,4]; a dynamic size counts with its bound.
std::int64_t elements_of(const std::string& type) {
  const std::size_t open = type.find('[');
  if (open == std::string::npos) throw std::invalid_argument("no type of an array: " + type);
  std::int64_t total = 1, size = -1;
  for (std::size_t i = open + 1; i < type.size() && type[i - 1] != ']'; ++i) {
    if (type[i] >= '0' && type[i] <= '9') {
      size = std::max<std::int64_t>(size, 0) * 10 + (type[i] - '0');
    } else if (size >= 0 && (type[i] == ',' || type[i] == ']')) {
      total *= size;
      size = -1;
    }
  }
  return total;
}

using Numbers = std::vector<std::int64_t>;

Layout whole(std::int64_t bytes) { return {{bytes}, {1}, {1}, 0, 0}; }

Numbers numbers_of(const Json& list) {
  Numbers numbers;
  for (const Json& each : list.list()) numbers.push_back(each.integer());
  return numbers;
}

// Its extents, the strides on both sides, and the steps of both.
Layout layout_of(const Json& copy) {
  const Json::List& parts = copy.list();
  Layout layout{numbers_of(parts.at(0)), numbers_of(parts.at(1)), numbers_of(parts.at(2)), parts.at(3).integer(),
                parts.at(4).integer()};
  const std::size_t rank = layout.extents.size();
  if (rank == 0 || layout.source_strides.size() != rank || layout.target_strides.size() != rank ||
      layout.source_strides.back() != 1 || layout.target_strides.back() != 1)
    throw std::invalid_argument("a copy has no extents, not as many strides, or no run of bytes");
  // collapse dimensions that are contiguous on both sides
  for (std::size_t i = rank - 1; i-- > 0;) {
    const bool joined = layout.source_strides[i] == layout.extents[i + 1] * layout.source_strides[i + 1] &&
                        layout.target_strides[i] == layout.extents[i + 1] * layout.target_strides[i + 1];
    if (!joined && layout.extents[i] != 1) continue;
    if (joined) {
      layout.extents[i + 1] *= layout.extents[i];
    }
    for (Numbers* numbers : {&layout.extents, &layout.source_strides, &layout.target_strides})
      numbers->erase(numbers->begin() + static_cast<std::ptrdiff_t>(i));
  }
  return layout;
}

// A member that may be missing, as a list.
const Json::List& list_in(const Json& config, const char* key) {
  static const Json::List none;
  const Json* found = config.find(key);
  return found != nullptr ? found->list() : none;
}

std::vector<int> devices_of(const Json& list, int num_devices) {
  std::vector<int> devices;
  for (const Json& each : list.list()) {
    const std::int64_t device = each.integer();
    if (device < 0) throw std::invalid_argument("a group or a pair has a device of a negative number");
    if (device >= num_devices) throw std::invalid_argument("a group or a pair has a device that the program is not for");
    devices.push_back(static_cast<int>(device));
  }
  return devices;
}

// End of the bytes that one side of the part accesses.
std::int64_t reach(const Layout& layout, const Numbers& strides) {
  std::int64_t last = 1;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (layout.extents[i] == 0) return 0;
    last += (layout.extents[i] - 1) * strides[i];
  }
  return last;
}

}  // namespace

std::int64_t Layout::bytes() const {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t(1), std::multiplies<>());
}

Collective::Collective(std::int64_t number_, const Json& config, int num_devices)
    : number(number_), op(op_of(config["op"].text())), name(kNames[static_cast<int>(op)]) {
  if (const Json* given = config.find("place")) place = given->text();
  if (const Json* given = config.find("channel")) channel = given->integer();
  for (const Json& group : list_in(config, "groups")) groups.push_back(devices_of(group, num_devices));
  for (const Json& pair : list_in(config, "pairs")) {
    const std::vector<int> both = devices_of(pair, num_devices);
    if (both.size() != 2) throw std::invalid_argument("a pair that is not of two devices");
    pairs.emplace_back(both[0], both[1]);
  }
  const Json::List &inputs = config["inputs"].list(), &outputs = config["outputs"].list();
  const Json::List& copies = list_in(config, "copies");
  const Numbers element_bytes = numbers_of(config["element_bytes"]);
  const std::size_t count = std::max(inputs.size(), outputs.size());
  if (element_bytes.size() != count || (!is_message() && inputs.size() != outputs.size()) ||
      (!copies.empty() && copies.size() != count))
    throw std::invalid_argument("a collective's inputs, outputs, copies and element sizes are not equally many");
  for (std::size_t i = 0; i < count; ++i) {
    Operand operand;
    operand.element_bytes = element_bytes[i];
    if (i < inputs.size()) {
      operand.input_type = inputs[i].text();
      operand.input_bytes = elements_of(operand.input_type) * element_bytes[i];
    }
    if (i < outputs.size()) {
      operand.output_type = outputs[i].text();
      operand.output_bytes = elements_of(operand.output_type) * element_bytes[i];
    }
    operand.layout = !copies.empty() ? layout_of(copies[i]) : whole(operand.input_bytes);
    operands.push_back(std::move(operand));
  }
  if (op == Op::kPermute) join_pairs();
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (std::size_t position = 0; position < groups[group].size(); ++position) {
      const int device = groups[group][position];
      if (static_cast<std::size_t>(device) >= seats_.size()) seats_.resize(static_cast<std::size_t>(device) + 1);
      if (seats_[static_cast<std::size_t>(device)].group >= 0) throw std::invalid_argument("a device is in two groups");
      seats_[static_cast<std::size_t>(device)] = {static_cast<int>(group), static_cast<int>(position)};
    }
  for (auto [source, target] : pairs) {
    if (static_cast<std::size_t>(target) >= gets_.size()) gets_.resize(static_cast<std::size_t>(target) + 1);
    gets_[static_cast<std::size_t>(target)] = true;
  }
  check_layouts();
}

Seat Collective::seat(int device) const {
  return static_cast<std::size_t>(device) < seats_.size() ? seats_[static_cast<std::size_t>(device)] : Seat{};
}

bool Collective::gets_nothing(int device) const {
  if (op == Op::kPermute || op == Op::kRecv)
    return static_cast<std::size_t>(device) >= gets_.size() || !gets_[static_cast<std::size_t>(device)];
  return op == Op::kBroadcast && seat(device).group < 0;
}

// A permute's groups: connected components of its pairs, in the order of the devices' numbers.
void Collective::join_pairs() {
  int count = 0;
  for (auto [source, target] : pairs) count = std::max({count, source + 1, target + 1});
  std::vector<int> first(static_cast<std::size_t>(count));  // union-find: the smallest device of each component
  std::iota(first.begin(), first.end(), 0);
  const auto find = [&](int device) {
    while (first[static_cast<std::size_t>(device)] != device) device = first[static_cast<std::size_t>(device)];
    return device;
  };
  std::vector<bool> named(static_cast<std::size_t>(count));
  for (auto [source, target] : pairs) {
    named[static_cast<std::size_t>(source)] = named[static_cast<std::size_t>(target)] = true;
    const int a = find(source), b = find(target);
    first[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
  }
  groups.clear();
  std::vector<int> group_of(static_cast<std::size_t>(count), -1);
  for (int device = 0; device < count; ++device) {
    if (!named[static_cast<std::size_t>(device)]) continue;
    int& group = group_of[static_cast<std::size_t>(find(device))];
    if (group < 0) {
      group = static_cast<int>(groups.size());
      groups.emplace_back();
    }
    groups[static_cast<std::size_t>(group)].push_back(device);
  }
}

// Bounds checks: a wrong configuration must not corrupt memory.
void Collective::check_layouts() const {
  if (is_message()) return;
  std::size_t most = 0;
  for (const auto& group : groups) {
    if (group.empty()) throw std::invalid_argument("a group without devices");
    most = std::max(most, group.size());
  }
  const bool whole_arrays = op == Op::kAllReduce || op == Op::kPermute || op == Op::kBroadcast;
  for (const Operand& operand : operands) {
    const Layout& layout = operand.layout;
    const auto last = static_cast<std::int64_t>(most) - 1;
    const std::int64_t source = reach(layout, layout.source_strides) + std::max<std::int64_t>(last, 0) * layout.source_step;
    const std::int64_t target = reach(layout, layout.target_strides) + std::max<std::int64_t>(last, 0) * layout.target_step;
    const bool negative = std::min(layout.source_step, layout.target_step) < 0 ||
                          std::any_of(layout.extents.begin(), layout.extents.end(), [](auto n) { return n < 0; });
    if (negative || (layout.bytes() > 0 && (source > operand.input_bytes || target > operand.output_bytes)))
      throw std::invalid_argument("the parts of " + name + " reach outside of its arrays");
    if (whole_arrays && (layout.source_step != 0 || layout.target_step != 0 || operand.input_bytes != operand.output_bytes))
      throw std::invalid_argument(name + " is of whole arrays");
    if (is_fold() && (layout.target_step != 0 || layout.run() % std::max<std::int64_t>(operand.element_bytes, 1) != 0))
      throw std::invalid_argument("the parts of " + name + " are no whole elements");
  }
}

std::string Collective::text() const {
  const std::size_t begin = place.find_first_not_of(" \n");
  return begin == std::string::npos ? name : name + " " + place.substr(begin);
}

std::uint64_t Collective::hash() const {
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xFF)) * 0x100000001B3u;
  };
  const auto add_text = [&](const std::string& text) {
    add(text.size());
    for (char c : text) add(static_cast<unsigned char>(c));
  };
  add_text(name);
  for (const auto& group : groups) {
    add(group.size());
    for (int device : group) add(static_cast<std::uint64_t>(device));
  }
  for (auto [source, target] : pairs) add(static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(target));
  add(static_cast<std::uint64_t>(channel));
  for (const Operand& operand : operands) {
    add_text(operand.input_type);
    add_text(operand.output_type);
  }
  return hash;
}

}  // namespace stablexla
