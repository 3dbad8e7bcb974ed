// Computing 32 lanes at once: an operation on values of one type becomes a function of an instruction.
#pragma once

#include "machine.h"

namespace simulator {


template <class F, class R, class A>
void unary(Warp& w, const Instruction& i, Mask mask) {
  alignas(64) A abuf[kLanes];
  alignas(64) R out[kLanes];
  const A* a = w.read<A>(i.a, abuf);
  for (int l = 0; l < kLanes; ++l) out[l] = F::apply(a[l]);
  w.write(i.d, out, mask);
}

template <class F, class R, class A, class B>
void binary(Warp& w, const Instruction& i, Mask mask) {
  alignas(64) A abuf[kLanes];
  alignas(64) B bbuf[kLanes];
  alignas(64) R out[kLanes];
  const A* a = w.read<A>(i.a, abuf);
  const B* b = w.read<B>(i.b, bbuf);
  for (int l = 0; l < kLanes; ++l) out[l] = F::apply(a[l], b[l]);
  w.write(i.d, out, mask);
}

template <class F, class R, class A, class B, class C>
void ternary(Warp& w, const Instruction& i, Mask mask) {
  alignas(64) A abuf[kLanes];
  alignas(64) B bbuf[kLanes];
  alignas(64) C cbuf[kLanes];
  alignas(64) R out[kLanes];
  const A* a = w.read<A>(i.a, abuf);
  const B* b = w.read<B>(i.b, bbuf);
  const C* c = w.read<C>(i.c, cbuf);
  for (int l = 0; l < kLanes; ++l) out[l] = F::apply(a[l], b[l], c[l]);
  w.write(i.d, out, mask);
}

}  // namespace simulator
