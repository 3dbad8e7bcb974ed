// Branches, ends, barriers of a block and fences.
#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "decode.h"
#include "machine.h"

namespace simulator {
namespace {

void bra(Decode& d) {
  d.take("uni");
  d.finish(1);
  if (d.operand(0).kind != Operand::kName) d.refuse("a label is wanted");
  d.i.kind = Kind::kBranch;
  d.i.target = d.function().label(d.operand(0).name, d);
}

void brx(Decode& d) {
  d.expect("idx");
  d.take("uni");
  d.finish(2);
  d.i.kind = Kind::kTable;
  d.i.a = d.source(0, Type::kU32);
  auto table = d.function().text.tables.find(d.operand(1).name);
  if (table == d.function().text.tables.end()) d.refuse("unknown table " + d.operand(1).name);
  for (const std::string& label : table->second) d.i.targets.push_back(d.function().label(label, d));
}

void leave(Decode& d) {
  d.take("uni");
  d.finish(0);
  d.i.kind = Kind::kExit;
}

// bar.sync a{, b}; bar.arrive a, b; bar.red.op d, a{, b}, p
void bar(Decode& d) {
  bool old = d.statement().words[0] == "bar";
  if (old && d.more() && d.peek() == "warp") d.refuse("decoded elsewhere");
  d.take("cta");
  enum { kSync, kArrive, kRed } what = d.take("sync") ? kSync : d.take("arrive") ? kArrive : kRed;
  if (what == kRed) d.expect("red");
  bool aligned = d.take("aligned") || old;
  d.i.kind = Kind::kBarrier;
  d.i.flags = std::uint8_t((aligned ? 4 : 0) | (what == kArrive ? 1 : 0));
  std::size_t at = 0;
  if (what == kRed) {
    d.i.value = d.take("popc") ? 1 : d.take("and") ? 2 : d.take("or") ? 3 : 0;
    if (!d.i.value) d.refuse("popc, and, or");
    d.expect(d.i.value == 1 ? "u32" : "pred");
    d.i.d = d.i.value == 1 ? d.destination(0, 4) : d.predicate_destination(d.operand(0));
    at = 1;
  }
  std::size_t last = what == kRed ? 1 : 0, least = what == kArrive ? 2 : 1;
  d.finish_between(at + least + last, at + 2 + last);
  d.i.a = d.source(at, Type::kU32);
  if (d.count() == at + 2 + last) {
    d.i.b = d.source(at + 1, Type::kU32);
    d.i.flags |= 2;
  }
  if (what != kRed) return;
  bool negated = false;
  d.i.c = d.predicate_source(d.operand(d.count() - 1), negated);
  if (negated) d.i.flags |= 8;
}

void trap(Decode& d) {
  d.finish(0);
  d.i.run = [](Warp& w, const Instruction&, Mask mask) {
    fault(stablexla::cuda::kIllegalInstruction, where(w, __builtin_ctz(mask)) + " a trap");
  };
}

void nothing(Decode& d) {
  while (d.more()) d.word();
  d.i.run = [](Warp&, const Instruction&, Mask) {};
}

}  // namespace

void warp_barrier(Decode& d);  // bar.warp.sync

void add_control(Table& t) {
  t["bra"] = bra;
  t["brx"] = brx;
  t["ret"] = leave;
  t["exit"] = leave;
  t["bar"] = [](Decode& d) { d.more() && d.peek() == "warp" ? warp_barrier(d) : bar(d); };
  t["barrier"] = bar;
  t["trap"] = trap;
  t["nanosleep"] = nothing;
  t["griddepcontrol"] = nothing;
  t["setmaxnreg"] = nothing;
}

}  // namespace simulator
