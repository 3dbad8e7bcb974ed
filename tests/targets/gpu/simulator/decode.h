// What a family of instructions uses to understand a statement: its words one by one, and its operands as slots.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "program.h"

namespace simulator {

struct FunctionDecoder;

class Decode {
 public:
  Decode(const Statement& s, FunctionDecoder& f) : s_(s), f_(f) { i.line = s.line; }

  Instruction i;

  [[noreturn]] void refuse(const std::string& why) const { throw Refused(s_.line, s_.text() + ": " + why); }
  // Words of the name, left to right after the first one.
  bool take(const char* word) {
    bool found = at_ < s_.words.size() && s_.words[at_] == word;
    at_ += found;
    return found;
  }
  void expect(const char* word) {
    if (!take(word)) refuse(std::string("'") + word + "' is wanted" + here());
  }
  bool more() const { return at_ < s_.words.size(); }
  const std::string& word() {
    if (!more()) refuse("more words are wanted");
    return s_.words[at_++];
  }
  const std::string& peek() const { return s_.words[at_]; }
  Type type();
  Type type_of(std::initializer_list<Type> allowed);
  // All words were understood, and there are so many operands.
  void finish(std::size_t operands);
  void finish_between(std::size_t least, std::size_t most);
  std::string here() const { return more() ? " before '" + s_.words[at_] + "'" : ""; }

  std::size_t count() const { return s_.operands.size(); }
  const Operand& operand(std::size_t n) const { return s_.operands[n]; }
  const Statement& statement() const { return s_; }
  FunctionDecoder& function() { return f_; }

  Slot destination(std::size_t n, int bytes) { return destination(s_.operands.at(n), bytes, false); }
  Slot wide_destination(std::size_t n, int bytes) { return destination(s_.operands.at(n), bytes, true); }
  Slot source(std::size_t n, Type type) { return source(s_.operands.at(n), type, false); }
  Slot wide_source(std::size_t n, Type type) { return source(s_.operands.at(n), type, true); }
  Slot destination(const Operand& o, int bytes, bool wider);
  Slot source(const Operand& o, Type type, bool wider);
  Slot predicate_source(const Operand& o);       // a register; `!` is refused
  Slot predicate_source(const Operand& o, bool& negated);
  Slot predicate_destination(const Operand& o);
  std::int64_t integer(std::size_t n) const;
  // The parts of {a, b}; a single operand is one part.
  const std::vector<Operand>& parts(std::size_t n, std::vector<Operand>& single) const;
  // [register + offset] into i.a and i.offset.
  void address(std::size_t n, Space space);
  Slot constant(std::uint64_t value, int bytes);

 private:
  const Statement& s_;
  FunctionDecoder& f_;
  std::size_t at_ = 1;
};

using Decoder = void (*)(Decode&);
using Table = std::unordered_map<std::string, Decoder>;

void add_integer(Table&);
void add_bits(Table&);
void add_floating(Table&);
void add_small_floats(Table&);
void add_comparisons(Table&);
void add_conversions(Table&);
void add_moves(Table&);
void add_memory(Table&);
void add_atomics(Table&);
void add_control(Table&);
void add_warp(Table&);
void add_products(Table&);
void add_async_copies(Table&);
void add_mbarriers(Table&);
void add_warpgroup(Table&);

// Places of a function's names while its statements are decoded.
struct FunctionDecoder {
  Module& module;
  const FunctionText& text;
  Function& out;
  std::vector<Slot> registers;
  std::map<std::string, std::int64_t> shared, local, parameters;
  std::map<std::string, Slot> specials;
  std::map<std::string, int> starts;   // of labels: a statement's number; instructions match statements one to one
  std::map<std::pair<int, std::uint64_t>, Slot>& constants;
  std::uint32_t size = 0;              // bytes of registers so far

  Slot special(const std::string& name, const Decode& d, int bytes);
  int label(const std::string& name, const Decode& d) const;
  // The address of a variable, and its space.
  bool symbol(const std::string& name, Space& space, std::int64_t& address) const;
};

}  // namespace simulator
