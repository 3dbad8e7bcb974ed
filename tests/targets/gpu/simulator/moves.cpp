// mov with its packing and unpacking, and addresses between spaces.
#include "decode.h"
#include "lanes.h"
#include "spaces.h"

namespace simulator {
namespace {

struct Same { template <class T> static T apply(T a) { return a; } };

void mov_predicate(Warp& w, const Instruction& i, Mask mask) { w.write_predicate(i.d, w.predicate(i.a), mask); }

void pack(Warp& w, const Instruction& i, Mask mask) {
  int part = i.sources[0].bytes;
  std::uint64_t out[kLanes] = {};
  for (std::size_t n = 0; n < i.sources.size(); ++n) {
    const std::uint8_t* from = w.lanes<std::uint8_t>(i.sources[n]);
    for (int l = 0; l < kLanes; ++l) std::memcpy(reinterpret_cast<char*>(&out[l]) + n * std::size_t(part), from + l * part, std::size_t(part));
  }
  std::uint8_t* to = w.lanes<std::uint8_t>(i.d);
  for (int l = 0; l < kLanes; ++l) {
    if (mask >> l & 1) std::memcpy(to + l * i.d.bytes, &out[l], i.d.bytes);
  }
}

void unpack(Warp& w, const Instruction& i, Mask mask) {
  std::uint8_t from[kLanes * 16];
  std::memcpy(from, w.lanes<std::uint8_t>(i.a), std::size_t(i.a.bytes) * kLanes);
  std::size_t at = 0;
  for (const Slot& part : i.more) {
    std::uint8_t* to = w.lanes<std::uint8_t>(part);
    for (int l = 0; part.bank != 2 && l < kLanes; ++l) {
      if (mask >> l & 1) std::memcpy(to + l * part.bytes, from + std::size_t(l) * i.a.bytes + at, part.bytes);
    }
    at += part.bytes;
  }
}

void clock(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t out[kLanes];
  for (auto& o : out) o = w.executed;
  if (i.d.bytes == 8) return w.write(i.d, out, mask);
  std::uint32_t low[kLanes];
  for (auto& o : low) o = std::uint32_t(w.executed);
  w.write(i.d, low, mask);
}

Run mover(int bytes) {
  return bytes == 2   ? &unary<Same, std::uint16_t, std::uint16_t>
         : bytes == 4 ? &unary<Same, std::uint32_t, std::uint32_t>
         : bytes == 8 ? &unary<Same, std::uint64_t, std::uint64_t> : nullptr;
}

void mov(Decode& d) {
  Type t = d.type();
  d.finish(2);
  const Operand &to = d.operand(0), &from = d.operand(1);
  int bytes = bytes_of(t);
  if (t == Type::kPred) {
    d.i.run = &mov_predicate;
    d.i.d = d.predicate_destination(to);
    d.i.a = d.predicate_source(from);
  } else if (from.kind == Operand::kVector) {
    int part = bytes / int(from.parts.size());
    if (bytes > 8) d.refuse("not for 128 bits");
    for (const Operand& o : from.parts) d.i.sources.push_back(d.source(o, part == 2 ? Type::kB16 : part == 4 ? Type::kB32 : Type::kB8, false));
    d.i.run = &pack;
    d.i.d = d.destination(0, bytes);
  } else if (to.kind == Operand::kVector) {
    int part = bytes / int(to.parts.size());
    if (part * int(to.parts.size()) != bytes || part < 2) d.refuse("parts of another width");
    for (const Operand& o : to.parts) d.i.more.push_back(d.destination(o, part, false));
    d.i.run = &unpack;
    d.i.a = d.source(1, t);
  } else if (from.kind == Operand::kName && (from.name == "%clock" || from.name == "%clock64" || from.name == "%globaltimer")) {
    d.i.run = &clock;
    d.i.d = d.destination(0, bytes);
  } else {
    d.i.run = mover(bytes);
    d.i.d = d.destination(0, bytes);
    Space space;
    std::int64_t address = 0;
    if (from.kind == Operand::kName && d.function().symbol(from.name, space, address)) {
      if (bytes < 4) d.refuse("an address does not fit");
      d.i.a = d.constant(std::uint64_t(address + from.value), bytes);
    } else {
      d.i.a = d.source(1, t);
    }
  }
}

template <class T>
void move_window(Warp& w, const Instruction& i, Mask mask) {
  T buffer[kLanes], out[kLanes];
  const T* a = w.read<T>(i.a, buffer);
  for (int l = 0; l < kLanes; ++l) out[l] = a[l] + T(i.value);
  w.write(i.d, out, mask);
}

std::uint64_t window(Decode& d) {
  if (d.take("global") || d.take("const")) return 0;
  if (d.take("shared") || d.take("shared::cta")) return kSharedWindow;
  if (d.take("local")) return kLocalWindow;
  if (d.take("param") || d.take("param::entry")) return kParamWindow;
  d.refuse("a space is wanted" + d.here());
}

void cvta(Decode& d) {
  bool to = d.take("to");
  std::uint64_t base = window(d);
  d.expect("u64");
  d.finish(2);
  d.i.run = &move_window<std::uint64_t>;
  d.i.value = std::int64_t(to ? 0 - base : base);
  d.i.d = d.destination(0, 8);
  const Operand& from = d.operand(1);
  Space space;
  std::int64_t address = 0;
  if (from.kind == Operand::kName && d.function().symbol(from.name, space, address)) {
    d.i.a = d.constant(std::uint64_t(address + from.value), 8);
  } else {
    d.i.a = d.source(1, Type::kU64);
  }
}

void isspacep(Decode& d) {
  d.i.value = std::int64_t(window(d));
  d.finish(2);
  d.i.run = [](Warp& w, const Instruction& i, Mask mask) {
    std::uint64_t buffer[kLanes];
    const std::uint64_t* a = w.read<std::uint64_t>(i.a, buffer);
    Mask p = 0;
    for (int l = 0; l < kLanes; ++l) {
      bool windowed = a[l] >= kSharedWindow && a[l] < kParamWindow + kWindow;
      bool inside = i.value ? a[l] - std::uint64_t(i.value) < kWindow : !windowed;
      p |= Mask(inside) << l;
    }
    w.write_predicate(i.d, p, mask);
  };
  d.i.d = d.predicate_destination(d.operand(0));
  d.i.a = d.source(1, Type::kU64);
}

}  // namespace

void add_moves(Table& t) {
  t["mov"] = mov;
  t["cvta"] = cvta;
  t["isspacep"] = isspacep;
}

}  // namespace simulator
