// Decoding a module: places of registers and variables, then every statement by the family that knows its first word.
#include <sstream>

#include "decode.h"
#include "spaces.h"

namespace simulator {
namespace {

const Table& table() {
  static const Table all = [] {
    Table t;
    for (auto add : {add_integer, add_bits, add_floating, add_small_floats, add_comparisons, add_conversions, add_moves,
                     add_memory, add_atomics, add_control, add_warp, add_products, add_async_copies, add_mbarriers,
                     add_warpgroup}) {
      add(t);
    }
    return t;
  }();
  return all;
}

int chip_number(const std::string& target, int line) {
  if (target.compare(0, 3, "sm_") != 0) throw Refused(line, "unknown target " + target);
  return std::stoi(target.substr(3));
}

std::string used_names(const FunctionText& f) {
  std::string all = "\n";
  for (const Statement& s : f.statements) {
    for (const Operand& o : s.operands) {
      all += o.name + "\n";
      for (const Operand& p : o.parts) all += p.name + "\n";
    }
  }
  return all;
}

// Static shared variables one after another, then what a launch asks for.
void place_shared(FunctionDecoder& f, const ModuleText& module) {
  std::vector<const Variable*> all;
  std::string used = used_names(f.text);
  for (const Variable& v : module.variables) {
    if (v.space == Space::kShared && used.find("\n" + v.name + "\n") != std::string::npos) all.push_back(&v);
  }
  for (const Variable& v : f.text.variables) {
    if (v.space == Space::kShared) all.push_back(&v);
  }
  std::int64_t at = kReservedShared;
  for (const Variable* v : all) {
    if (v->external) {
      f.out.dynamic_alignment = std::max(f.out.dynamic_alignment, v->alignment);
      continue;
    }
    at = align_up(at, v->alignment);
    f.shared[v->name] = at;
    at += v->bytes;
  }
  f.out.static_shared = at - kReservedShared;
  if (f.out.static_shared > 48 * 1024) throw Refused(f.text.line, f.text.name + " has more than 48 KB of static shared memory");
  std::int64_t dynamic = align_up(at, f.out.dynamic_alignment);
  for (const Variable* v : all) {
    if (v->external) f.shared[v->name] = dynamic;
  }
}

void place_local(FunctionDecoder& f) {
  std::int64_t at = 0;
  for (const Variable& v : f.text.variables) {
    if (v.space == Space::kParam) throw Refused(v.line, "calls of functions are not simulated: " + v.name);
    if (v.space != Space::kLocal) continue;
    at = align_up(at, v.alignment);
    f.local[v.name] = at;
    at += v.bytes;
  }
  f.out.local = align_up(at, 16);
}

void place_parameters(FunctionDecoder& f) {
  std::int64_t at = 0;
  for (const Variable& v : f.text.parameters) {
    at = align_up(at, v.alignment);
    f.parameters[v.name] = at;
    f.out.parameter_offsets.push_back(at);
    f.out.parameter_bytes.push_back(v.bytes);
    at += v.bytes;
  }
  f.out.parameters = at;
}

void place_registers(FunctionDecoder& f) {
  for (const Register& r : f.text.registers) {
    f.registers.push_back(Slot{f.size, 0, std::uint8_t(r.bytes)});
    f.size += r.bytes == 0 ? 4 : std::uint32_t(r.bytes * kLanes);
  }
  f.size = std::uint32_t(align_up(f.size, 64));
}

void note_grain(const Instruction& i, int bytes, Function& out) {
  if (bytes <= 0) return;
  if (i.space == Space::kShared || i.space == Space::kGeneric) out.shared_grain = std::min(out.shared_grain, bytes);
  if (i.space == Space::kGlobal || i.space == Space::kGeneric) out.global_grain = std::min(out.global_grain, bytes);
}

void count_registers(const Operand& o, std::vector<int>& counts) {
  if (o.kind == Operand::kRegister) ++counts[std::size_t(o.reg)];
  for (const Operand& part : o.parts) count_registers(part, counts);
}

// How often each register is named: one that a vector load alone names is never read.
std::vector<int> count_registers(const FunctionText& f) {
  std::vector<int> counts(f.registers.size());
  for (const Statement& s : f.statements) {
    if (s.guard >= 0) ++counts[std::size_t(s.guard)];
    for (const Operand& o : s.operands) count_registers(o, counts);
  }
  return counts;
}

// Which parts of a vector load are read, as bits of `value`; compilers fill gaps between loads with parts nobody reads.
void note_used(Instruction& i, const Operand& to, const std::vector<int>& counts) {
  if (to.kind != Operand::kVector) return;
  std::int64_t used = 0;
  for (std::size_t n = 0; n < to.parts.size(); ++n) {
    const Operand& part = to.parts[n];
    if (part.kind == Operand::kRegister && counts[std::size_t(part.reg)] > 1) used |= std::int64_t(1) << n;
  }
  bool all = used + 1 == std::int64_t(1) << to.parts.size();
  if (used && !all) i.value = used;
}

Instruction decode(const Statement& s, FunctionDecoder& f, const std::vector<int>& counts) {
  Decode d(s, f);
  auto found = table().find(s.words[0]);
  if (found == table().end()) d.refuse("this instruction is not known");
  found->second(d);
  if (s.words[0] == "ld") note_used(d.i, s.operands[0], counts);
  if (s.guard >= 0) {
    d.i.guarded = true;
    d.i.guard_negated = s.guard_negated;
    d.i.guard = f.registers[std::size_t(s.guard)];
    if (d.i.guard.bytes != 0) d.refuse("the guard is no predicate");
  }
  if (!d.i.run && d.i.kind == Kind::kPlain) d.refuse("this form is not known");
  static const std::string kTouching = " ld st atom red cp ";
  if (s.words[0] == "cp" && d.i.value >= 4) f.out.shared_grain = std::min(f.out.shared_grain, int(d.i.value));
  if (kTouching.find(" " + s.words[0] + " ") != std::string::npos) note_grain(d.i, bytes_of(d.i.type), f.out);
  return d.i;
}

void load_function(Module& module, const ModuleText& text, const FunctionText& f,
                   std::map<std::pair<int, std::uint64_t>, Slot>& constants) {
  if (!f.entry) throw Refused(f.line, "functions besides kernels are not simulated: " + f.name);
  Function& out = module.functions[f.name];
  out.name = f.name;
  out.entry = f.entry;
  out.begin = int(module.code.size());
  std::copy(f.threads, f.threads + 3, out.threads);
  out.threads_required = f.threads_required;
  FunctionDecoder decoder{module, f, out, {}, {}, {}, {}, {}, {}, constants};
  place_registers(decoder);
  place_parameters(decoder);
  place_shared(decoder, text);
  place_local(decoder);
  std::vector<int> counts = count_registers(f);
  for (const Statement& s : f.statements) module.code.push_back(decode(s, decoder, counts));
  Instruction end;  // where a function ends without `ret`
  end.kind = Kind::kExit;
  end.line = f.statements.empty() ? f.line : f.statements.back().line;
  module.code.push_back(end);
  out.registers = std::uint32_t(align_up(decoder.size, 64));
}

}  // namespace

Module load(const std::string& text, int chip, Loader& loader) {
  ModuleText parsed = parse(text);
  Module module;
  module.source = text;
  module.version = parsed.version;
  module.target = parsed.target;
  module.chip = chip_number(parsed.target, 1);
  bool exact = parsed.target.back() == 'a';
  if (exact ? module.chip != chip : module.chip > chip) {
    throw Refused(1, "the target " + parsed.target + " does not run on sm_" + std::to_string(chip));
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) module.lines.push_back(line);
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> places;
  for (const Variable& v : parsed.variables) {
    if (v.space != Space::kGlobal && v.space != Space::kConstant) continue;
    bytes = align_up(bytes, std::max<std::int64_t>(v.alignment, 16));
    places[v.name] = bytes;
    bytes += v.bytes;
    module.globals.push_back(v);
  }
  if (bytes) {
    module.memory = loader.allocate(bytes);
    std::vector<std::uint8_t> content(static_cast<std::size_t>(bytes));
    for (const Variable& v : module.globals) {
      module.addresses[v.name] = module.memory + std::uint64_t(places[v.name]);
      std::copy(v.initial.begin(), v.initial.end(), content.begin() + places[v.name]);
    }
    loader.write(module.memory, content);
  }
  std::map<std::pair<int, std::uint64_t>, Slot> constants;
  for (const auto& [name, f] : parsed.functions) {
    if (f.defined) load_function(module, parsed, f, constants);
  }
  return module;
}

}  // namespace simulator
