// Plain values as JSON writes them: a reader for bytes of any contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stablexla {

class Json {
 public:
  using List = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  // Throws std::runtime_error, as all of these do for what is of another kind.
  static Json parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool boolean() const;
  std::int64_t integer() const;
  std::size_t size() const;  // an integer of 0 or more
  double number() const;
  const std::string& text() const;
  std::string bytes() const;  // a text of hexadecimal digits, two for each
  const List& list() const;
  const Members& members() const;
  const Json* find(std::string_view name) const;  // a member; null where there is none
  const Json& operator[](std::string_view name) const;

 private:
  friend class JsonReader;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Members> value_;
};

}  // namespace stablexla
