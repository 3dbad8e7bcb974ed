#include "guard_faults.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>

#include "guard.h"
#include "object_code.h"
#include "stopping.h"
#include "system.h"

namespace stablexla {
namespace {

struct sigaction former[std::size(kFaults)];

struct sigaction& former_of(int number) {
  return former[std::find(std::begin(kFaults), std::end(kFaults), number) - std::begin(kFaults)];
}

#if defined(__aarch64__)
// Which access an instruction makes. Of loads and stores, bit 22 is set in those that load, but for loads relative to the
// instruction, and those that extend the sign to 64 bits.
Access access_of(std::uint32_t instruction) {
  if ((instruction >> 25 & 5) != 4) return Access::kUnknown;
  const std::uint32_t group = instruction >> 27 & 7;
  const bool is_vector = (instruction >> 26 & 1) != 0;
  const bool extends = group == 7 && !is_vector && (instruction >> 22 & 3) == 2;
  return group == 3 || extends || (instruction >> 22 & 1) != 0 ? Access::kRead : Access::kWrite;
}
#endif

Access access_at(const Interrupted& where, const void* address) {
#if defined(__aarch64__)
  if (reinterpret_cast<std::uintptr_t>(address) == where.instruction) return Access::kUnknown;  // a jump to no code
  std::uint32_t instruction;
  std::memcpy(&instruction, reinterpret_cast<const void*>(where.instruction), sizeof instruction);
  return access_of(instruction);
#else
  static_cast<void>(address);
  return where.access == 2 ? Access::kWrite : where.access == 1 ? Access::kRead : Access::kUnknown;
#endif
}

// Machine code has no frames that must not be jumped over; neither have memcpy and its like, which it calls.
bool can_be_left(const Interrupted& where) {
  return is_machine_code(where.instruction) || is_machine_code(where.caller);
}

void on_fault(int number, siginfo_t* info, void* context) {
  const Innermost& here = innermost_run_here;
  if (here.guard != nullptr && is_fault(*info)) {
    const Interrupted where = interrupted_of(context);
    if (can_be_left(where)) {
      here.guard->note(reinterpret_cast<std::uintptr_t>(info->si_addr), access_at(where, info->si_addr));
      here.run->stop(Ending::kOutside);
      _longjmp(*here.way_out, 1);
    }
    constexpr char said[] = "stablexla: a function that a program under guard calls went outside of its arrays\n";
    if (here.guard->has(reinterpret_cast<std::uintptr_t>(info->si_addr)) && write(2, said, sizeof said - 1) < 0) return;
  }
  // Not ours. Where there was no handler, or it fails itself, the instruction is repeated, and ends the process.
  thread_local bool is_asking = false;
  struct sigaction& before = former_of(number);
  const bool is_told = (before.sa_flags & SA_SIGINFO) == 0;
  if (is_told && before.sa_handler == SIG_IGN && !is_fault(*info)) return;
  if (is_asking || (is_told && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN))) {
    sigaction(number, &before, nullptr);
    if (!is_fault(*info)) raise(number);
    return;
  }
  is_asking = true;
  if (is_told) {
    before.sa_handler(number);
  } else {
    before.sa_sigaction(number, info, context);
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
    for (int number : kFaults) sigaction(number, &ours, &former_of(number));
  });
}

}  // namespace stablexla
