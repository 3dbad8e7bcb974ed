// PTX as text: what a module's lines say, with names of registers resolved, before any instruction is looked at.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace simulator {

// A text that is not understood, or that breaks a rule: a line and what is wrong.
struct Refused : std::runtime_error {
  Refused(int line, const std::string& what) : std::runtime_error("line " + std::to_string(line) + ": " + what) {}
};

enum class Space : std::uint8_t { kRegister, kGeneric, kGlobal, kShared, kLocal, kParam, kConstant };

struct Operand {
  enum Kind { kRegister, kInteger, kFloat, kDouble, kName, kAddress, kVector, kList, kPair, kSink } kind = kSink;
  std::string name;             // of a symbol, a label or a special register
  int reg = -1;                 // kRegister: its number in the function
  bool negated = false;         // !%p1, -%r1
  std::int64_t value = 0;       // of an integer; the bits of a float; the offset of an address or a name
  std::vector<Operand> parts;   // of a vector, a list, a pair; the base of an address
};

struct Statement {
  int line = 0;
  int guard = -1;  // a predicate's register
  bool guard_negated = false;
  std::vector<std::string> words;  // the instruction's name, split at its dots
  std::vector<Operand> operands;
  std::string text() const;
};

struct Register {
  int bytes = 4;  // 0: a predicate
};

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  std::int64_t alignment = 1, bytes = 0;
  bool external = false;  // an array without a size: memory that a launch asks for
  bool sized = true;
  std::vector<std::uint8_t> initial;
  int line = 0;
};

struct FunctionText {
  std::string name;
  int line = 0;
  bool entry = false, defined = false;
  std::vector<Variable> results, parameters, variables;
  std::vector<Register> registers;
  std::vector<Statement> statements;
  std::map<std::string, int> labels;  // the statement that follows
  std::map<std::string, std::vector<std::string>> tables;  // of brx.idx
  std::int64_t threads[3] = {0, 0, 0};  // .maxntid
  bool threads_required = false;        // .reqntid
};

struct ModuleText {
  int version = 0;  // 78 is 7.8
  std::string target;
  std::vector<Variable> variables;
  std::map<std::string, FunctionText> functions;
};

ModuleText parse(const std::string& text);

}  // namespace simulator
