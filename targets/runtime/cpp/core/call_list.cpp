#include "call_list.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "stopping.h"
#include "thread_pool.h"

namespace {

using Number = std::int64_t;

// As many arguments as kernels of a list may have, without their range: `MOST_ARGUMENTS` of targets/llvm/call_list.py.
constexpr std::size_t kMostArguments = 24;
// As many entries as the tables of a call may have together, but for those of numbers alone: `MOST_NUMBERS` of
// targets/llvm/forwarded.py.
constexpr std::size_t kMostNumbers = 64;

// As many floats as there may be among the arguments: `MOST_FLOATS` of targets/llvm/call_list.py.
constexpr std::size_t kMostFloats = 4;

// What an argument is that is no buffer, as targets/llvm/call_list.py has it.
enum Kind : Number {
  kInteger = -1,
  kComputed = -2,
  kFunction = -3,
  kNumbers = -4,
  kPairs = -5,
  kFloat = -6,
  kComputedFloat = -7
};

// The calling conventions pass addresses and integers alike: in registers, and then in eight bytes each. (On macOS
// narrow integers behind the eighth argument take less; kernels that have such are not listed.) Floats are in registers
// of their own, wherever they stand among the arguments, and narrow ones in the lower bits: all calls fill these.
struct Call {
  const void* function;
  std::size_t count = 0;
  Number arguments[kMostArguments];
  double floats[kMostFloats] = {};
  Number tables[kMostNumbers];
};

// What the numbers of a list refer to, as of `stablexla_run_calls`.
struct Given {
  const void* const* functions;
  void* const* const* buffers;
  const Number* computed;

  Number value(const Number* pair) const {
    switch (pair[0]) {
      case kInteger:
      case kFloat: return pair[1];
      case kComputedFloat:
      case kComputed: return computed[pair[1]];
      case kFunction: return reinterpret_cast<Number>(functions[pair[1]]);
      default: return reinterpret_cast<Number>(*buffers[pair[0]]) + pair[1];
    }
  }
};

template <std::size_t>
using OneNumber = Number;

template <std::size_t... i>
void call_with(const Call& call, Number low, Number high, std::index_sequence<i...>) {
  using Function = void(OneNumber<i>..., Number, Number, double, double, double, double);
  static_assert(kMostFloats == 4);
  reinterpret_cast<Function*>(call.function)(call.arguments[i]..., low, high, call.floats[0], call.floats[1],
                                             call.floats[2], call.floats[3]);
}

template <std::size_t n>
void call_of(const Call& call, Number low, Number high) {
  call_with(call, low, high, std::make_index_sequence<n>());
}

using Caller = void (*)(const Call& call, Number low, Number high);

template <std::size_t... n>
constexpr auto callers_of(std::index_sequence<n...>) {
  struct Callers {
    Caller of[sizeof...(n)];
  };
  return Callers{{call_of<n>...}};
}

constexpr auto kCallers = callers_of(std::make_index_sequence<kMostArguments + 1>());

void call_range(void* context, Number low, Number high) {
  const Call& call = *static_cast<const Call*>(context);
  kCallers.of[call.count](call, low, high);
}

}  // namespace

// No object here has a destructor, as a run is left by longjmp.
extern "C" void stablexla_run_calls(const void* const* functions, const Number* calls, Number count,
                                    void* const* const* buffers, const Number* computed) {
  const Given given{functions, buffers, computed};
  for (const Number* const end = calls + count; calls != end;) {
    const Number items = calls[1], grain = calls[2], place = calls[3];
    Call call;
    call.function = functions[calls[0]];
    Number left = calls[4];
    calls += 5;
    Number* table = call.tables;
    double* next_float = call.floats;
    for (; left > 0; --left) {
      const Number kind = calls[0], length = calls[1];
      if (kind != kNumbers && kind != kPairs) {
        const Number value = given.value(calls);
        if (kind == kFloat || kind == kComputedFloat)
          std::memcpy(next_float++, &value, sizeof value);
        else
          call.arguments[call.count++] = value;
        calls += 2;
        continue;
      }
      calls += 2;
      call.arguments[call.count++] = reinterpret_cast<Number>(kind == kNumbers ? calls : table);
      if (kind == kNumbers) {
        calls += length;
      } else {
        for (Number entry = 0; entry < length; ++entry, calls += 2) *table++ = given.value(calls);
      }
    }
    if (grain != 0)
      stablexla_parallel_for(call_range, &call, items, grain);
    else
      call_range(&call, 0, items);
    stablexla_check(place);
  }
}
