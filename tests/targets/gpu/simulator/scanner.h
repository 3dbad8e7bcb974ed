// Reading PTX character by character: spaces, comments, words and numbers.
#pragma once

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

#include "text.h"

namespace simulator {

class Scanner {
 public:
  explicit Scanner(const std::string& text) : at_(text.c_str()), end_(text.c_str() + text.size()) { skip(); }

  int line() const { return line_; }
  bool done() const { return at_ >= end_; }
  char peek() const { return done() ? '\0' : *at_; }
  [[noreturn]] void refuse(const std::string& what) const { throw Refused(line_, what); }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    skip();
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(std::string("'") + c + "' is wanted before '" + rest() + "'");
  }
  bool take(const char* word) {
    std::size_t n = std::strlen(word);
    if (std::size_t(end_ - at_) < n || std::strncmp(at_, word, n) != 0) return false;
    if (is_word(at_[n]) && is_word(word[n - 1])) return false;
    at_ += n;
    skip();
    return true;
  }
  bool at_word() const { return !done() && (std::isalpha(*at_) || std::strchr("_$%.", *at_)); }
  // A name, with dots in it: an instruction, a directive, a register.
  std::string word() {
    const char* begin = at_;
    while (is_word(peek()) || peek() == '.' || (peek() == ':' && at_[1] == ':') || (peek() == ':' && at_[-1] == ':')) ++at_;
    if (at_ == begin) refuse("a name is wanted before '" + rest() + "'");
    std::string found(begin, at_);
    skip();
    return found;
  }
  bool at_number() const { return std::isdigit(peek()) || (peek() == '-' && std::isdigit(at_[1])); }
  // An integer or a float written by its bits.
  Operand number() {
    bool minus = take('-');
    Operand o;
    o.kind = Operand::kInteger;
    if (*at_ == '0' && (at_[1] == 'f' || at_[1] == 'F' || at_[1] == 'd' || at_[1] == 'D')) {
      bool wide = std::tolower(at_[1]) == 'd';
      o.kind = wide ? Operand::kDouble : Operand::kFloat;
      int digits = wide ? 16 : 8;
      for (int i = 0; i < digits; ++i) {
        if (!std::isxdigit(at_[2 + i])) refuse("a float of " + std::to_string(digits) + " digits is wanted");
      }
      o.value = std::int64_t(std::strtoull(std::string(at_ + 2, std::size_t(digits)).c_str(), nullptr, 16));
      if (minus) o.value ^= std::int64_t(1) << (wide ? 63 : 31);
      at_ += 2 + digits;
    } else {
      char* after = nullptr;
      o.value = std::int64_t(std::strtoull(at_, &after, 0));
      if (*after == '.' || *after == 'e') {
        o.kind = Operand::kDouble;
        double d = std::strtod(at_, &after);
        if (minus) d = -d;
        std::memcpy(&o.value, &d, 8);
      } else if (minus) {
        o.value = -o.value;
      }
      if (*after == 'U') ++after;
      at_ = after;
    }
    if (is_word(peek())) refuse("a number ends in '" + rest() + "'");
    skip();
    return o;
  }
  // A word that begins with a digit: a version.
  std::string word_or_number() { return word(); }
  char character() {
    char c = *at_++;
    skip();
    return c;
  }
  // The rest of the line, of no meaning here.
  void line_rest() {
    while (!done() && *at_ != '\n') ++at_;
    skip();
  }
  std::string rest() const {
    const char* stop = at_;
    while (stop < end_ && *stop != '\n' && stop - at_ < 40) ++stop;
    return std::string(at_, stop);
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }
  void skip() {
    for (; at_ < end_; ++at_) {
      if (*at_ == '\n') {
        ++line_;
      } else if (*at_ == '/' && at_[1] == '/') {
        while (at_ < end_ && *at_ != '\n') ++at_;
        --at_;
      } else if (*at_ == '/' && at_[1] == '*') {
        for (; at_ < end_ && !(*at_ == '*' && at_[1] == '/'); ++at_) line_ += *at_ == '\n';
        ++at_;
      } else if (!std::isspace(static_cast<unsigned char>(*at_))) {
        return;
      }
    }
  }

  const char* at_;
  const char* end_;
  int line_ = 1;
};

}  // namespace simulator
