// The CPU's floating-point control state of a thread: denormals, rounding and exception masks.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

namespace stablexla {

#if defined(__x86_64__)
using FloatState = unsigned;
inline FloatState current_float_state() { return _mm_getcsr(); }
inline void set_float_state(FloatState state) { _mm_setcsr(state); }
// All exceptions masked, round to nearest; 0x8000 flushes results to zero, 0x0040 reads denormals as zero.
inline FloatState program_float_state(bool flush_denormals) { return flush_denormals ? 0x1F80u | 0x8040u : 0x1F80u; }
inline FloatState without_sticky_flags(FloatState state) { return state & ~0x3Fu; }
#elif defined(__aarch64__)
using FloatState = std::uint64_t;
inline FloatState current_float_state() {
  FloatState state;
  asm volatile("mrs %0, fpcr" : "=r"(state));
  return state;
}
inline void set_float_state(FloatState state) { asm volatile("msr fpcr, %0" ::"r"(state)); }
// FZ, and FZ16 where there is arithmetic on halves (asimdhp; Apple's have it): elsewhere the bit stays 0, and would look
// changed.
inline FloatState program_float_state(bool flush_denormals) {
#if defined(__linux__)
  static const FloatState kHalves = getauxval(AT_HWCAP) >> 10 & 1;
#else
  static const FloatState kHalves = 1;
#endif
  return flush_denormals ? FloatState(1) << 24 | kHalves << 19 : 0;
}
inline FloatState without_sticky_flags(FloatState state) { return state; }
#else
#error "the floating-point state of this CPU is not known here"
#endif

// Sets this thread's state, and restores the former one at the end of the scope. Writing the control register is slow,
// so it is skipped where the state is in force already.
class FloatScope {
 public:
  explicit FloatScope(FloatState wanted) : former_(current_float_state()) {
    changed_ = without_sticky_flags(former_) != without_sticky_flags(wanted);
    if (changed_) set_float_state(wanted);
  }
  ~FloatScope() {
    if (changed_) set_float_state(former_);
  }
  FloatScope(const FloatScope&) = delete;
  FloatScope& operator=(const FloatScope&) = delete;

 private:
  FloatState former_;
  bool changed_;
};

}  // namespace stablexla
