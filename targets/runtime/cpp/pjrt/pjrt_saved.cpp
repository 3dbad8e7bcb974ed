#include "pjrt_saved.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "container.h"
#include "ffi_call.h"
#include "plain_run.h"
#include "pjrt_code.h"
#include "pjrt_messages.h"

namespace stablexla::pjrt {

PJRT_Error* (*costs_of_saved)(const Storage& bytes, std::vector<std::pair<std::string, float>>& found) =
    [](const Storage&, std::vector<std::pair<std::string, float>>&) {
      return error(kUnimplemented, "costs are found by the compiler, which needs Python");
    };
PJRT_Error* (*partition_of_saved)(const Storage& bytes, std::string& text) = [](const Storage&, std::string&) {
  return error(kUnimplemented, "the program of one partition is found by the compiler, which needs Python");
};

namespace {

constexpr std::size_t kAlignment = 64;  // of sections and constants
constexpr const char kEntry[] = "_mlir_main";

std::size_t padded(std::size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

struct Array : Parameter {
  std::size_t bytes;
};

// Of a type as XLA writes it, such as f32[2,3].
Array array_of(const std::string& text) {
  const std::size_t bracket = text.find('[');
  const auto* found = std::find(kTypeNames, kTypeNames + kTypeCount, text.substr(0, bracket));
  Array made{{static_cast<PJRT_Buffer_Type>(found - kTypeNames), {}, {}}, 0};
  if (bracket == std::string::npos || element_bytes(made.type) == 0)
    throw std::runtime_error("no type of an array: " + text);
  std::istringstream rest(text.substr(bracket + 1));
  for (std::int64_t extent; rest >> extent; rest.ignore()) made.dims.push_back(extent);
  if (const std::unique_ptr<PJRT_Error> wrong{measure(made.type, made.dims, made.bytes)})
    throw std::runtime_error(text + ": " + wrong->message);
  return made;
}

class SavedProgram final : public PJRT_Executable {
 public:
  SavedProgram(const PJRT_Client& client, std::shared_ptr<Storage> bytes, const std::string& given, bool own)
      : bytes_(std::move(bytes)) {
    const Container file = read_container({static_cast<const char*>(bytes_->data), bytes_->bytes}, own);
    const Json& description = file.description;
    if (description["stablexla"].text() != STABLEXLA_VERSION)
      throw Refused(kFailedPrecondition, "stablexla " + description["stablexla"].text() + " wrote it, and this is " STABLEXLA_VERSION);
    name = description["name"].text();
    const Json& function = description["function"];
    check(description);
    check_machine(function);
    if (function.find("gpu") != nullptr) throw Refused(kUnimplemented, "it is for a GPU");
    code_ = load_code(file.sections.at("code"), function["code"]);
    for (const auto& each : code_) code_bytes += static_cast<std::int64_t>(each->size());
    plain_.name = name;
    plain_.entry = reinterpret_cast<Entry>(code_.back()->address(kEntry));
    if (plain_.entry == nullptr) throw std::runtime_error("its code has no beginning");
    plain_.flush_denormals = function["flush_denormals"].boolean();
    plain_.arena_bytes = function["arena_bytes"].size();
    arena_bytes = static_cast<std::int64_t>(plain_.arena_bytes);
    take_constants(file.sections.at("constants"), function["constants"]);
    take_devices(description);
    take_calls(function["host_calls"]);
    const std::string_view source = file.sections.at("source");
    has_source_ = !source.empty();
    if (num_partitions == 1) text = source;  // that of a partition is another one
    const Json* plain = description.find("pjrt");
    fingerprint = plain != nullptr ? (*plain)["fingerprint"].text() : std::to_string(std::hash<std::string_view>()(source));
    read_interface(description, plain);
    place_on(client, !given.empty() || plain == nullptr ? given : (*plain)["options"].bytes());
    lay_out();
  }

  bool needs_python() const override { return false; }

  PJRT_Error* run(const Memories& arguments, const Memories& results) override {
    RunControl control;
    return run_code(plain_, together_.get(), arguments, results, control);
  }

  PJRT_Error* save(std::string& bytes) override {
    bytes.assign(static_cast<const char*>(bytes_->data), bytes_->bytes);
    return nullptr;
  }
  PJRT_Error* partition(std::string& found) override {
    if (!has_source_) return error(kUnimplemented, name + ": it was saved without its source");
    return partition_of_saved(*bytes_, found);
  }
  PJRT_Error* count_costs(std::vector<std::pair<std::string, float>>& found) override {
    return costs_of_saved(*bytes_, found);
  }

 private:
  static void check(const Json& description) {
    for (const char* side : {"dynamic_parameters", "dynamic_results"})
      for (const Json& dimensions : description[side].list())
        if (!dimensions.list().empty())
          throw Refused(kUnimplemented, "it has dimensions with sizes at run time, for which PJRT has no arguments");
  }

  // Calls of handlers are bound to those that are registered now.
  void take_calls(const Json& calls) {
    if (calls.is_null()) return;
    std::string names;
    for (const Json& call : calls.list()) {
      const Json* target = call.find("target");
      const Json* form = call.find("form");
      ffi::Handler* handler = form != nullptr && target != nullptr ? find_handler(target->text()) : nullptr;
      if (handler != nullptr)
        plain_.calls.push_back(std::make_shared<FfiCall>(target->text(), FfiStages{nullptr, nullptr, nullptr, handler}, *form));
      else
        names += (names.empty() ? "" : ", ") + (target != nullptr ? target->text() : call["call"].text()) +
                 (form != nullptr ? ", a handler that PJRT_FFI_Register_Handler has not registered" : "");
    }
    if (!names.empty()) throw Refused(kUnimplemented, "it calls functions of Python's: " + names);
  }

  void take_constants(std::string_view section, const Json& sizes) {
    std::size_t offset = 0;
    for (const Json& each : sizes.list()) {
      const std::size_t size = each.size();
      if (offset > section.size() || size > section.size() - offset)
        throw std::runtime_error("its constants are not of the length that they should have");
      plain_.constants.push_back(size == 0 ? nothing : const_cast<char*>(section.data()) + offset);
      offset += padded(size);
    }
  }

  void take_devices(const Json& description) {
    const Json& function = description["function"];
    const std::size_t count = function["num_devices"].size(), replicas = description["num_replicas"].size();
    const std::size_t partitions = description["num_partitions"].size();
    if (count < 1 || count > kMostDevices || replicas > count || partitions > count || replicas * partitions != count)
      throw std::runtime_error("its devices are not as many as its replicas and partitions");
    num_replicas = static_cast<int>(replicas);
    num_partitions = static_cast<int>(partitions);
    if (count == 1) return;
    together_ = std::make_unique<DeviceProgram>(name, function["collectives"].list(), static_cast<int>(count));
  }

  void read_interface(const Json& description, const Json* plain) {
    std::vector<Array> given, made;
    for (const Json& each : description["parameters"].list()) given.push_back(array_of(each.text()));
    for (const Json& each : description["results"].list()) made.push_back(array_of(each.text()));
    const auto are_tokens = [&](const char* side, std::size_t count) {
      std::vector<bool> found(count, false);
      if (plain == nullptr) return found;
      found.clear();
      for (const Json& each : (*plain)[side].list()) found.push_back(each.boolean());
      if (std::count(found.begin(), found.end(), false) != static_cast<std::ptrdiff_t>(count))
        throw std::runtime_error("its arrays are not as many as its interface says");
      return found;
    };
    // Its orders are from major to minor.
    const auto order_of = [&](const char* side, std::size_t i, std::size_t rank) {
      Order order;
      if (plain == nullptr) return order;
      for (const Json& each : (*plain)[side].list().at(i).list()) order.insert(order.begin(), each.integer());
      Order sorted(order);
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t d = 0; d < sorted.size(); ++d)
        if (sorted.size() != rank || sorted[d] != static_cast<std::int64_t>(d)) throw std::runtime_error("no order of an array's dimensions");
      return order;
    };
    const std::vector<bool> tokens = are_tokens("arguments", given.size());
    num_arguments = tokens.size();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i]) {
        argument_layouts.emplace_back(Order(), 0);
        continue;
      }
      Array& array = given[takes.size()];
      array.order = order_of("argument_orders", i, array.dims.size());
      array.dims = logical(array.dims, array.order);
      argument_layouts.emplace_back(array.order, array.dims.size());
      takes.push_back(static_cast<int>(i));
    }
    std::map<std::int64_t, int> aliases;
    for (const Json& pair : description["function"]["aliases"].list())
      aliases[pair.list().at(0).integer()] = static_cast<int>(pair.list().at(1).integer());
    std::size_t next = 0, number = 0;
    for (bool is_token : are_tokens("results", made.size())) {
      const std::size_t kind = plain == nullptr ? 0 : kind_of((*plain)["output_kinds"].list().at(number).text());
      ++number;
      if (is_token) {
        outputs.push_back({static_cast<PJRT_Buffer_Type>(kToken), {}, 0, -1, kind, {}});
        continue;
      }
      const auto alias = aliases.find(static_cast<std::int64_t>(next));
      const int from = alias == aliases.end() ? -1 : alias->second;
      if (from < -1 || from >= static_cast<int>(given.size())) throw std::runtime_error("an alias of an array that is not there");
      const Array& array = made[next++];
      const Order order = order_of("result_orders", number - 1, array.dims.size());
      outputs.push_back({array.type, logical(array.dims, order), array.bytes, from, kind, order});
      output_bytes += static_cast<std::int64_t>(array.bytes);
      if (from >= 0) alias_bytes += static_cast<std::int64_t>(array.bytes);
    }
    parameters.assign(given.begin(), given.end());
    for (const Array& each : given) argument_bytes += static_cast<std::int64_t>(each.bytes);
    if (plain == nullptr) return;
    read_donated(*plain, given, made);
    const auto shardings = [plain](const char* side) {
      std::vector<std::string> found;
      for (const Json& each : (*plain)[side].list()) found.push_back(each.bytes());
      return Texts(std::move(found));
    };
    parameter_shardings = shardings("parameter_shardings");
    output_shardings = shardings("output_shardings");
  }

  // As `_used_up` of stablexla/pjrt/compiling.py.
  void read_donated(const Json& plain, const std::vector<Array>& given, const std::vector<Array>& made) {
    std::vector<std::size_t> free;
    for (const Array& each : made) free.push_back(each.bytes);
    std::set<std::int64_t> aliasing, donors;
    for (const auto& [name, places] : plain["donated"].members())
      for (const Json& place : places.list())
        (name == "tf.aliasing_output" ? aliasing : donors).insert(place.integer());
    for (std::size_t i = 0; i < takes.size(); ++i) {
      const auto same = std::find(free.begin(), free.end(), given[i].bytes);
      const bool is_aliasing = aliasing.count(takes[i]) != 0;
      if (!is_aliasing && (donors.count(takes[i]) == 0 || same == free.end())) continue;
      donated.push_back(static_cast<int>(i));
      if (same != free.end()) free.erase(same);
    }
  }

  void place_on(const PJRT_Client& client, const std::string& options) {
    const auto partitions = static_cast<std::size_t>(num_partitions);
    const DeviceNumbers numbers = devices_of(options, static_cast<std::size_t>(num_replicas), partitions);
    for (std::size_t device : numbers) {
      if (device >= client.device_list.size())
        throw Refused(kInvalidArgument,
                      "it is for device " + std::to_string(device) + ", where there are " +
                          std::to_string(client.device_list.size()) + "; STABLEXLA_NUM_DEVICES says how many");
      const int number = static_cast<int>(devices.size());
      devices.push_back(client.device_list[device]);
      logical_ids.push_back({number / num_partitions, number % num_partitions});
    }
    assignment = assignment_to(numbers, partitions);
  }

  const std::shared_ptr<Storage> bytes_;  // the constants are in there
  std::vector<std::unique_ptr<ObjectCode>> code_;
  PlainCode plain_;
  std::unique_ptr<DeviceProgram> together_;  // on several devices
  bool has_source_ = false;
};

}  // namespace

std::string_view file_in(std::string_view bytes) {
  std::string_view rest = bytes;
  if (bytes.empty() || is_container(bytes)) return bytes;
  std::size_t size = 0;
  for (int shift = 0; shift < 63 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    size |= std::size_t(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return size <= rest.size() && is_container(rest.substr(size)) ? rest.substr(size) : bytes;
}

PJRT_Error* load_saved(const PJRT_Client& client, std::shared_ptr<Storage> bytes, const std::string& options, bool own,
                       std::shared_ptr<PJRT_Executable>& made) {
  const char* const what = own ? "the compiled program" : "a saved program";
  try {
    made = std::make_shared<SavedProgram>(client, std::move(bytes), options, own);
    return nullptr;
  } catch (const Refused& failure) {
    return error(failure.code, std::string(what) + " cannot run here: " + failure.what());
  } catch (const std::exception& failure) {
    return error(kInvalidArgument, std::string(what) + " does not hold together: " + failure.what());
  }
}

}  // namespace stablexla::pjrt
