#include "guard_faults.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "guard.h"
#include "object_code.h"
#include "stopping.h"

namespace stablexla {
namespace {

struct sigaction former;

// Where a thread was when it was refused.
struct Refused {
  std::uintptr_t instruction = 0, caller = 0;  // the caller's only where a function without a frame was refused
  Access access = Access::kUnknown;
};

#if defined(__x86_64__)
Refused refused_of(const void* context, const void*) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  Refused found;
  found.instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  found.caller = *reinterpret_cast<const std::uintptr_t*>(machine.gregs[REG_RSP]);
  found.access = machine.gregs[REG_ERR] & 2 ? Access::kWrite : Access::kRead;
  return found;
}
#elif defined(__aarch64__)
// Which access an instruction makes. Of loads and stores, bit 22 is set in those that load, but for loads relative to the
// instruction, and those that extend the sign to 64 bits.
Access access_of(std::uint32_t instruction) {
  if ((instruction >> 25 & 5) != 4) return Access::kUnknown;
  const std::uint32_t group = instruction >> 27 & 7;
  const bool is_vector = (instruction >> 26 & 1) != 0;
  const bool extends = group == 7 && !is_vector && (instruction >> 22 & 3) == 2;
  return group == 3 || extends || (instruction >> 22 & 1) != 0 ? Access::kRead : Access::kWrite;
}

Refused refused_of(const void* context, const void* address) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  Refused found;
  found.instruction = static_cast<std::uintptr_t>(machine.pc);
  found.caller = static_cast<std::uintptr_t>(machine.regs[30]);
  if (reinterpret_cast<std::uintptr_t>(address) != found.instruction) {  // not a jump to where there is no code
    std::uint32_t instruction;
    std::memcpy(&instruction, reinterpret_cast<const void*>(found.instruction), sizeof instruction);
    found.access = access_of(instruction);
  }
  return found;
}
#else
Refused refused_of(const void*, const void*) { return {}; }
#endif

// Machine code has no frames that must not be jumped over; neither have memcpy and its like, which it calls.
bool can_be_left(const Refused& refused) {
  return is_machine_code(refused.instruction) || is_machine_code(refused.caller);
}

void on_fault(int number, siginfo_t* info, void* context) {
  const Innermost& here = innermost_run_here;
  if (here.guard != nullptr && info->si_code > 0) {
    const Refused refused = refused_of(context, info->si_addr);
    if (can_be_left(refused)) {
      here.guard->note(reinterpret_cast<std::uintptr_t>(info->si_addr), refused.access);
      here.run->stop(Ending::kOutside);
      _longjmp(*here.way_out, 1);
    }
    constexpr char said[] = "stablexla: a function that a program under guard calls went outside of its arrays\n";
    if (here.guard->has(reinterpret_cast<std::uintptr_t>(info->si_addr)) && write(2, said, sizeof said - 1) < 0) return;
  }
  // Not ours. Where there was no handler, or it fails itself, the instruction is repeated, and ends the process.
  thread_local bool is_asking = false;
  const bool is_told = (former.sa_flags & SA_SIGINFO) == 0;
  if (is_told && former.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (is_asking || (is_told && (former.sa_handler == SIG_DFL || former.sa_handler == SIG_IGN))) {
    sigaction(number, &former, nullptr);
    if (info->si_code <= 0) raise(number);
    return;
  }
  is_asking = true;
  if (is_told) {
    former.sa_handler(number);
  } else {
    former.sa_sigaction(number, info, context);
  }
  is_asking = false;
}

}  // namespace

void watch_for_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    // The handler is left by a jump, and nothing is blocked after it. On the alternate stack, where there is one, it can
    // hand a stack that overflowed on to the former handler.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, &former);
  });
}

}  // namespace stablexla
