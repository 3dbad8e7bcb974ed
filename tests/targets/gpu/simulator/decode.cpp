// Operands of statements as slots, and types.
#include "decode.h"

#include <algorithm>

#include "spaces.h"

namespace simulator {
namespace {

const std::map<std::string, Type> kTypes = {
    {"pred", Type::kPred},   {"b8", Type::kB8},         {"b16", Type::kB16},       {"b32", Type::kB32},
    {"b64", Type::kB64},     {"b128", Type::kB128},     {"u8", Type::kU8},         {"u16", Type::kU16},
    {"u32", Type::kU32},     {"u64", Type::kU64},       {"s8", Type::kS8},         {"s16", Type::kS16},
    {"s32", Type::kS32},     {"s64", Type::kS64},       {"f16", Type::kF16},       {"bf16", Type::kBF16},
    {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBF16x2}, {"f32", Type::kF32},       {"f64", Type::kF64},
    {"tf32", Type::kTF32},   {"f32x2", Type::kF32x2},   {"e4m3x2", Type::kE4M3x2}, {"e5m2x2", Type::kE5M2x2},
    {"e4m3", Type::kE4M3},   {"e5m2", Type::kE5M2}};

}  // namespace

int bytes_of(Type type) {
  switch (type) {
    case Type::kNone: case Type::kPred: return 0;
    case Type::kB8: case Type::kU8: case Type::kS8: case Type::kE4M3: case Type::kE5M2: return 1;
    case Type::kB16: case Type::kU16: case Type::kS16: case Type::kF16: case Type::kBF16: return 2;
    case Type::kE4M3x2: case Type::kE5M2x2: return 2;
    case Type::kB64: case Type::kU64: case Type::kS64: case Type::kF64: case Type::kF32x2: return 8;
    case Type::kB128: return 16;
    default: return 4;
  }
}

bool is_signed(Type t) { return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64; }

bool is_float(Type t) {
  return t == Type::kF16 || t == Type::kBF16 || t == Type::kF32 || t == Type::kF64 || t == Type::kTF32;
}

Type Decode::type() {
  auto found = kTypes.find(word());
  if (found == kTypes.end()) {
    --at_;
    refuse("a type is wanted" + here());
  }
  return found->second;
}

Type Decode::type_of(std::initializer_list<Type> allowed) {
  Type t = type();
  if (std::find(allowed.begin(), allowed.end(), t) == allowed.end()) refuse("not for ." + s_.words[at_ - 1]);
  return t;
}

void Decode::finish(std::size_t operands) { finish_between(operands, operands); }

void Decode::finish_between(std::size_t least, std::size_t most) {
  if (more()) refuse("'" + s_.words[at_] + "' is not known here");
  if (count() < least || count() > most) refuse(std::to_string(count()) + " operands");
}

Slot Decode::destination(const Operand& o, int bytes, bool wider) {
  if (o.kind == Operand::kSink) return Slot{0, 2, std::uint8_t(bytes)};
  if (o.kind != Operand::kRegister || o.negated) refuse("a register is wanted as the result");
  Slot s = f_.registers[std::size_t(o.reg)];
  if (s.bytes == 0 || (wider ? s.bytes < bytes : s.bytes != bytes)) {
    refuse(o.name + " has " + std::to_string(8 * s.bytes) + " bits, the result " + std::to_string(8 * bytes));
  }
  return s;
}

Slot Decode::source(const Operand& o, Type type, bool wider) {
  int bytes = bytes_of(type);
  if (o.negated) refuse("a negated operand");
  if (o.kind == Operand::kRegister) {
    Slot s = f_.registers[std::size_t(o.reg)];
    if (s.bytes == 0 || (wider ? s.bytes < bytes : s.bytes != bytes)) {
      refuse(o.name + " has " + std::to_string(8 * s.bytes) + " bits, the operand " + std::to_string(8 * bytes));
    }
    return s;
  }
  if (o.kind == Operand::kInteger) {
    if (is_float(type) && type != Type::kF16 && type != Type::kBF16) refuse("an integer where a float is wanted");
    if (bytes < 8 && (o.value >= std::int64_t(1) << (8 * bytes) || o.value < -(std::int64_t(1) << (8 * bytes - 1)))) {
      refuse(std::to_string(o.value) + " does not fit into " + std::to_string(8 * bytes) + " bits");
    }
    return constant(std::uint64_t(o.value), bytes);
  }
  if (o.kind == Operand::kFloat && bytes == 4 && type != Type::kU32 && type != Type::kS32) {
    return constant(std::uint64_t(o.value), 4);
  }
  if (o.kind == Operand::kDouble && bytes == 8 && type != Type::kU64 && type != Type::kS64) {
    return constant(std::uint64_t(o.value), 8);
  }
  if (o.kind == Operand::kName && o.name[0] == '%') return f_.special(o.name, *this, bytes);
  refuse("operand '" + o.name + "' is not understood for this type");
}

Slot Decode::predicate_source(const Operand& o) {
  bool negated = false;
  Slot s = predicate_source(o, negated);
  if (negated) refuse("a negated predicate");
  return s;
}

Slot Decode::predicate_source(const Operand& o, bool& negated) {
  negated = o.negated;
  if (o.kind == Operand::kInteger && (o.value == 0 || o.value == 1 || o.value == -1)) {
    return constant(o.value ? ~std::uint64_t(0) : 0, 0);
  }
  if (o.kind != Operand::kRegister || f_.registers[std::size_t(o.reg)].bytes != 0) refuse("a predicate is wanted");
  return f_.registers[std::size_t(o.reg)];
}

Slot Decode::predicate_destination(const Operand& o) {
  if (o.kind == Operand::kSink) return Slot{0, 2, 0};
  return predicate_source(o);
}

std::int64_t Decode::integer(std::size_t n) const {
  const Operand& o = s_.operands.at(n);
  if (o.kind != Operand::kInteger) refuse("a number is wanted as operand " + std::to_string(n + 1));
  return o.value;
}

const std::vector<Operand>& Decode::parts(std::size_t n, std::vector<Operand>& single) const {
  const Operand& o = s_.operands.at(n);
  if (o.kind == Operand::kVector) return o.parts;
  single = {o};
  return single;
}

void Decode::address(std::size_t n, Space space) {
  const Operand& o = s_.operands.at(n);
  if (o.kind != Operand::kAddress) refuse("an address is wanted as operand " + std::to_string(n + 1));
  const Operand& base = o.parts[0];
  i.space = space;
  i.offset = o.value;
  if (base.kind == Operand::kRegister) {
    Slot s = f_.registers[std::size_t(base.reg)];
    bool narrow = space == Space::kShared || space == Space::kLocal || space == Space::kParam;
    if (s.bytes != 8 && !(narrow && s.bytes == 4)) refuse("an address of " + std::to_string(8 * s.bytes) + " bits");
    i.a = s;
    return;
  }
  Space of = Space::kGlobal;
  std::int64_t at = base.value;
  if (base.kind == Operand::kName) {
    if (!f_.symbol(base.name, of, at)) refuse("unknown name " + base.name);
    if (of == Space::kConstant && space == Space::kGlobal) of = Space::kGlobal;
    if (of != space) refuse(base.name + " lies in another space");
  } else if (base.kind != Operand::kInteger) {
    refuse("an address that is not understood");
  }
  i.a = constant(std::uint64_t(at), 8);
}

Slot Decode::constant(std::uint64_t value, int bytes) {
  auto found = f_.constants.find({bytes, value});
  if (found != f_.constants.end()) return found->second;
  auto& all = f_.module.constants;
  Slot s{std::uint32_t(all.size()), 1, std::uint8_t(bytes)};
  std::size_t size = bytes == 0 ? 32 : std::size_t(bytes) * kLanes;
  all.resize(all.size() + size);
  for (int l = 0; l < (bytes == 0 ? 1 : kLanes); ++l) {
    int width = bytes == 0 ? 4 : std::min(bytes, 8);
    std::memcpy(&all[s.offset + std::size_t(l * (bytes == 0 ? 4 : bytes))], &value, std::size_t(width));
  }
  return f_.constants[{bytes, value}] = s;
}

Slot FunctionDecoder::special(const std::string& name, const Decode& d, int bytes) {
  auto found = specials.find(name);
  if (found != specials.end()) {
    if (found->second.bytes < bytes) d.refuse(name + " is narrower");
    return found->second;
  }
  static const std::map<std::string, int> kSpecials = {
      {"%tid.x", 4}, {"%tid.y", 4}, {"%tid.z", 4}, {"%ntid.x", 4}, {"%ntid.y", 4}, {"%ntid.z", 4}, {"%ctaid.x", 4},
      {"%ctaid.y", 4}, {"%ctaid.z", 4}, {"%nctaid.x", 4}, {"%nctaid.y", 4}, {"%nctaid.z", 4}, {"%laneid", 4},
      {"%warpid", 4}, {"%nwarpid", 4}, {"%smid", 4}, {"%nsmid", 4}, {"%gridid", 8}, {"%lanemask_eq", 4},
      {"%lanemask_lt", 4}, {"%lanemask_le", 4}, {"%lanemask_gt", 4}, {"%lanemask_ge", 4},
      {"%dynamic_smem_size", 4}, {"%total_smem_size", 4}};
  auto known = kSpecials.find(name);
  if (known == kSpecials.end()) d.refuse("unknown name " + name);
  if (known->second != bytes) d.refuse(name + " has " + std::to_string(8 * known->second) + " bits");
  Slot s{size, 0, std::uint8_t(known->second)};
  size += std::uint32_t(known->second * kLanes);
  out.specials.push_back({name, s});
  return specials[name] = s;
}

int FunctionDecoder::label(const std::string& name, const Decode& d) const {
  auto found = text.labels.find(name);
  if (found == text.labels.end()) d.refuse("unknown label " + name);
  return out.begin + found->second;
}

bool FunctionDecoder::symbol(const std::string& name, Space& space, std::int64_t& address) const {
  for (auto [all, of] : {std::pair{&shared, Space::kShared}, {&local, Space::kLocal}, {&parameters, Space::kParam}}) {
    auto found = all->find(name);
    if (found == all->end()) continue;
    space = of;
    address = found->second;
    return true;
  }
  auto found = module.addresses.find(name);
  if (found == module.addresses.end()) return false;
  address = std::int64_t(found->second);
  space = Space::kGlobal;
  for (const Variable& v : module.globals) {
    if (v.name == name) space = v.space;
  }
  return true;
}

}  // namespace simulator
