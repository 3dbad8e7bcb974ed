#include "json.h"

#include <cerrno>
#include <cstdlib>
#include <stdexcept>

namespace stablexla {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("plain values: " + what); }

constexpr int kDeepest = 200;

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json whole() {
    Json made = value(0);
    skip_space();
    if (at_ != text_.size()) refuse("there is something behind them");
    return made;
  }

 private:
  Json value(int depth) {
    if (depth > kDeepest) refuse("they are nested too deep");
    Json made;
    skip_space();
    switch (look()) {
      case '{': made.value_ = members(depth); break;
      case '[': made.value_ = list(depth); break;
      case '"': made.value_ = string(); break;
      case 't': word("true"), made.value_ = true; break;
      case 'f': word("false"), made.value_ = false; break;
      case 'n': word("null"); break;
      default: number(made);
    }
    return made;
  }

  Json::Members members(int depth) {
    Json::Members made;
    take('{');
    for (skip_space(); look() != '}'; skip_space()) {
      if (!made.empty()) take(','), skip_space();
      std::string name = string();
      skip_space();
      take(':');
      made.emplace_back(std::move(name), value(depth + 1));
    }
    take('}');
    return made;
  }

  Json::List list(int depth) {
    Json::List made;
    take('[');
    for (skip_space(); look() != ']'; skip_space()) {
      if (!made.empty()) take(',');
      made.push_back(value(depth + 1));
    }
    take(']');
    return made;
  }

  std::string string() {
    std::string made;
    take('"');
    for (char c = next(); c != '"'; c = next()) {
      if (c != '\\') {
        made += c;
        continue;
      }
      switch (c = next()) {
        case 'b': made += '\b'; break;
        case 'f': made += '\f'; break;
        case 'n': made += '\n'; break;
        case 'r': made += '\r'; break;
        case 't': made += '\t'; break;
        case 'u': append(made, code_point()); break;
        default: made += c;
      }
    }
    return made;
  }

  std::uint32_t code_point() {
    const std::uint32_t first = code_unit();
    if (first < 0xD800 || first > 0xDBFF) return first;
    word("\\u");
    const std::uint32_t second = code_unit();
    if (second < 0xDC00 || second > 0xDFFF) refuse("half of a character");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  std::uint32_t code_unit() {
    std::uint32_t made = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      const char* digits = "0123456789abcdef";
      const char lower = static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c);
      const std::size_t digit = std::string_view(digits).find(lower);
      if (digit == std::string_view::npos) refuse("a character that is no hexadecimal digit");
      made = made << 4 | static_cast<std::uint32_t>(digit);
    }
    return made;
  }

  static void append(std::string& text, std::uint32_t point) {
    const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (point < 0x80) {
      add(point);
    } else if (point < 0x800) {
      add(0xC0 | point >> 6), add(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      add(0xE0 | point >> 12), add(0x80 | (point >> 6 & 0x3F)), add(0x80 | (point & 0x3F));
    } else {
      add(0xF0 | point >> 18), add(0x80 | (point >> 12 & 0x3F));
      add(0x80 | (point >> 6 & 0x3F)), add(0x80 | (point & 0x3F));
    }
  }

  void number(Json& made) {
    const std::size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos) ++at_;
    const std::string digits(text_.substr(start, at_ - start));
    if (digits.empty()) refuse("there is no value");
    char* end = nullptr;
    errno = 0;
    if (digits.find_first_of(".eE") == std::string::npos)
      made.value_ = static_cast<std::int64_t>(std::strtoll(digits.c_str(), &end, 10));
    else
      made.value_ = std::strtod(digits.c_str(), &end);
    if (*end != 0 || errno == ERANGE) refuse("no number: " + digits);
  }

  void word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) refuse("a word that is not known");
    at_ += wanted.size();
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  char look() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  char next() {
    if (at_ >= text_.size()) refuse("they end too early");
    return text_[at_++];
  }

  void take(char wanted) {
    if (next() != wanted) refuse(std::string("there is no ") + wanted + " where one is needed");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

namespace {

template <typename T, typename V>
const T& taken(const V& value, const char* what) {
  const T* found = std::get_if<T>(&value);
  if (found == nullptr) refuse(std::string("there is no ") + what + " where one is needed");
  return *found;
}

}  // namespace

Json Json::parse(std::string_view text) { return JsonReader(text).whole(); }

bool Json::boolean() const { return taken<bool>(value_, "true or false"); }
std::int64_t Json::integer() const { return taken<std::int64_t>(value_, "integer"); }
const std::string& Json::text() const { return taken<std::string>(value_, "text"); }
const Json::List& Json::list() const { return taken<List>(value_, "list"); }
const Json::Members& Json::members() const { return taken<Members>(value_, "mapping"); }

std::size_t Json::size() const {
  if (integer() < 0) refuse("a size below 0");
  return static_cast<std::size_t>(integer());
}

std::string Json::bytes() const {
  const std::string& digits = text();
  std::string made;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    made += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return made;
}

double Json::number() const {
  const auto* whole = std::get_if<std::int64_t>(&value_);
  return whole != nullptr ? static_cast<double>(*whole) : taken<double>(value_, "number");
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : members())
    if (key == name) return &value;
  return nullptr;
}

const Json& Json::operator[](std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) refuse("there is no " + std::string(name));
  return *found;
}

}  // namespace stablexla
