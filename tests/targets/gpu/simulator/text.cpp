// The parser of PTX: directives, declarations, blocks and instructions.
#include "text.h"

#include "scanner.h"

namespace simulator {
namespace {

const std::map<std::string, int> kBytes = {{"b8", 1},  {"u8", 1},  {"s8", 1},   {"b16", 2}, {"u16", 2}, {"s16", 2},
                                           {"f16", 2}, {"b32", 4}, {"u32", 4},  {"s32", 4}, {"f32", 4}, {"f16x2", 4},
                                           {"b64", 8}, {"u64", 8}, {"s64", 8},  {"f64", 8}, {"b128", 16}, {"pred", 0}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c == '.') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

struct Scope {
  std::map<std::string, int> registers;                         // %SP
  std::map<std::string, std::pair<int, std::int64_t>> ranges;   // %r<40>: the first's number and how many
  std::map<std::string, std::string> variables;                 // names inside of blocks, made unique
};

class Parser {
 public:
  explicit Parser(const std::string& text) : in_(text) {}

  ModuleText module() {
    while (!in_.done()) top();
    if (!out_.version) in_.refuse("no .version");
    if (out_.target.empty()) in_.refuse("no .target");
    return std::move(out_);
  }

 private:
  void top() {
    int line = in_.line();
    std::string word = in_.word();
    bool external = false;
    while (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
      external |= word == ".extern";
      word = in_.word();
    }
    if (word == ".version") {
      std::string major = in_.word_or_number();
      auto dot = major.find('.');
      if (dot == std::string::npos) in_.refuse("a version is wanted");
      out_.version = std::stoi(major.substr(0, dot)) * 10 + std::stoi(major.substr(dot + 1));
    } else if (word == ".target") {
      out_.target = in_.word();
      while (in_.take(',')) in_.word();
    } else if (word == ".address_size") {
      if (in_.number().value != 64) in_.refuse("addresses of 64 bits are wanted");
    } else if (word == ".entry" || word == ".func") {
      function(word == ".entry", line);
    } else if (word == ".file") {
      in_.line_rest();
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      out_.variables.push_back(variable(space(word), external));
      in_.expect(';');
    } else {
      throw Refused(line, "unknown directive " + word);
    }
  }

  Space space(const std::string& word) {
    static const std::map<std::string, Space> kSpaces = {{".global", Space::kGlobal},  {".const", Space::kConstant},
                                                         {".shared", Space::kShared},  {".local", Space::kLocal},
                                                         {".param", Space::kParam}};
    auto found = kSpaces.find(word);
    if (found == kSpaces.end()) in_.refuse("unknown space " + word);
    return found->second;
  }

  // After its space: .align 16 .b8 name[64] = {1, 2}
  Variable variable(Space where, bool external) {
    Variable v;
    v.space = where;
    v.line = in_.line();
    int element = -1;
    std::string word;
    for (word = in_.word(); word[0] == '.'; word = in_.word()) {
      if (word == ".align") {
        v.alignment = in_.number().value;
      } else if (word == ".ptr" || word == ".global" || word == ".shared") {
        continue;
      } else {
        auto found = kBytes.find(word.substr(1));
        if (found == kBytes.end() || !found->second) in_.refuse("unknown type " + word);
        element = found->second;
      }
    }
    if (element < 0) in_.refuse("a type is wanted for " + word);
    v.alignment = std::max<std::int64_t>(v.alignment, 1);
    if (element > v.alignment) v.alignment = element;
    v.name = word;
    v.bytes = element;
    while (in_.take('[')) {
      if (in_.peek() == ']') {
        v.sized = false;
        v.bytes = 0;
      } else {
        v.bytes *= in_.number().value;
      }
      in_.expect(']');
    }
    v.external = external || !v.sized;
    if (in_.take('=')) initial(v, element);
    return v;
  }

  void initial(Variable& v, int element) {
    auto put = [&](const Operand& o) {
      for (int i = 0; i < element; ++i) v.initial.push_back(std::uint8_t(o.value >> (8 * i)));
    };
    if (in_.take('{')) {
      do {
        put(in_.number());
      } while (in_.take(','));
      in_.expect('}');
    } else {
      put(in_.number());
    }
    if (std::int64_t(v.initial.size()) > v.bytes) in_.refuse("too many values for " + v.name);
    v.initial.resize(std::size_t(v.bytes));
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> all;
    if (!in_.take('(')) return all;
    while (!in_.take(')')) {
      std::string word = in_.word();
      if (word != ".param" && word != ".reg") in_.refuse("a parameter is wanted, not " + word);
      all.push_back(variable(Space::kParam, false));
      in_.take(',');
    }
    return all;
  }

  void function(bool entry, int line) {
    FunctionText f;
    f.line = line;
    f.entry = entry;
    f.results = parameters();
    f.name = in_.word();
    f.parameters = parameters();
    while (in_.peek() == '.') {
      std::string word = in_.word();
      if (word == ".maxntid" || word == ".reqntid") {
        f.threads_required = word == ".reqntid";
        for (int i = 0; i < 3; ++i) f.threads[i] = i == 0 || in_.take(',') ? in_.number().value : 1;
      } else if (word == ".minnctapersm" || word == ".maxnreg" || word == ".maxclusterrank") {
        in_.number();
      } else if (word != ".noreturn") {
        throw Refused(line, "unknown directive " + word + " of " + f.name);
      }
    }
    if (!in_.take(';')) {
      f.defined = true;
      function_ = &f;
      block();
      function_ = nullptr;
    } else if (out_.functions.count(f.name)) {
      return;  // a declaration after the definition
    }
    out_.functions[f.name] = std::move(f);
  }

  void block() {
    in_.expect('{');
    scopes_.emplace_back();
    while (!in_.take('}')) {
      if (in_.done()) in_.refuse("a block does not end");
      if (in_.peek() == '{') {
        block();
      } else {
        line();
      }
    }
    scopes_.pop_back();
  }

  void line() {
    Statement s;
    s.line = in_.line();
    if (in_.take('@')) {
      s.guard_negated = in_.take('!');
      Operand guard = operand();
      if (guard.kind != Operand::kRegister) in_.refuse("a predicate is wanted after @");
      s.guard = guard.reg;
    }
    std::string word = in_.word();
    if (in_.take(':')) {
      auto& labels = function_->labels;
      if (!labels.emplace(word, int(function_->statements.size())).second) in_.refuse("label " + word + " again");
      last_label_ = word;
      return;
    }
    if (word[0] == '.') return declaration(word);
    s.words = split(word);
    while (!in_.take(';')) {
      if (!s.operands.empty()) in_.expect(',');
      s.operands.push_back(operand());
      if (in_.take('|')) {
        Operand pair;
        pair.kind = Operand::kPair;
        pair.parts = {s.operands.back(), operand()};
        s.operands.back() = pair;
      }
    }
    function_->statements.push_back(std::move(s));
  }

  void declaration(const std::string& word) {
    if (word == ".reg") {
      std::string type = in_.word().substr(1);
      auto bytes = kBytes.find(type);
      if (bytes == kBytes.end()) in_.refuse("unknown type ." + type);
      do {
        std::string name = in_.word();
        int first = int(function_->registers.size());
        std::int64_t count = 1;
        if (in_.take('<')) {
          count = in_.number().value;
          in_.expect('>');
          scopes_.back().ranges[name] = {first, count};
        } else {
          scopes_.back().registers[name] = first;
        }
        function_->registers.resize(std::size_t(first + count), Register{bytes->second});
      } while (in_.take(','));
    } else if (word == ".loc" || word == ".pragma" || word == ".file") {
      if (word == ".pragma") {
        while (in_.peek() != ';') in_.character();
      } else {
        in_.line_rest();
        return;
      }
    } else if (word == ".branchtargets") {
      auto& table = function_->tables[last_label_];
      do {
        table.push_back(in_.word());
      } while (in_.take(','));
    } else {
      Variable v = variable(space(word), false);
      std::string name = v.name;
      if (scopes_.size() > 1) v.name += "#" + std::to_string(++unique_);
      scopes_.back().variables[name] = v.name;
      function_->variables.push_back(v);
    }
    in_.expect(';');
  }

  int find_register(const std::string& name) const {
    std::size_t digits = name.size();
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      auto single = scope->registers.find(name);
      if (single != scope->registers.end()) return single->second;
      auto range = scope->ranges.find(name.substr(0, digits));
      if (digits == name.size() || range == scope->ranges.end()) continue;
      std::int64_t n = std::stoll(name.substr(digits));
      if (n < range->second.second) return range->second.first + int(n);
    }
    return -1;
  }

  Operand named() {
    Operand o;
    std::string word = in_.word();
    if (word == "_") return o;
    o.reg = find_register(word);
    o.kind = o.reg >= 0 ? Operand::kRegister : Operand::kName;
    o.name = word;
    for (auto scope = scopes_.rbegin(); o.reg < 0 && scope != scopes_.rend(); ++scope) {
      auto found = scope->variables.find(word);
      if (found == scope->variables.end()) continue;
      o.name = found->second;
      break;
    }
    return o;
  }

  std::vector<Operand> until(char close) {
    std::vector<Operand> parts;
    while (!in_.take(close)) {
      if (!parts.empty()) in_.expect(',');
      parts.push_back(operand());
    }
    return parts;
  }

  Operand operand() {
    Operand o;
    if (in_.take('!')) {
      o = operand();
      o.negated = true;
    } else if (in_.take('{')) {
      o.kind = Operand::kVector;
      o.parts = until('}');
    } else if (in_.take('(')) {
      o.kind = Operand::kList;
      o.parts = until(')');
    } else if (in_.take('[')) {
      o.kind = Operand::kAddress;
      o.parts.push_back(in_.at_number() ? in_.number() : named());
      if (in_.take('+')) o.value = in_.number().value;
      if (in_.peek() == '-') o.value = in_.number().value;
      in_.expect(']');
    } else if (in_.at_number()) {
      o = in_.number();
    } else {
      o = named();
      if (o.kind == Operand::kName && in_.take('+')) o.value = in_.number().value;
    }
    return o;
  }

  Scanner in_;
  ModuleText out_;
  FunctionText* function_ = nullptr;
  std::vector<Scope> scopes_;
  std::string last_label_;
  int unique_ = 0;
};

}  // namespace

std::string Statement::text() const {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ".") + word;
  return all;
}

ModuleText parse(const std::string& text) { return Parser(text).module(); }

}  // namespace simulator
