// Operating system interface, Linux's and macOS's; all else here is POSIX. docs/decisions/0064-macos.md
#pragma once

#include <cxxabi.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

namespace stablexla {

using Word = std::atomic<std::uint32_t>;

// Sleeps while the word is unchanged, and at most so long; may return early.
void futex_wait(Word& word, std::uint32_t seen);
void futex_wait(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit);
// Wakes at most `count` of the threads that sleep on the word, whose memory may be gone.
void futex_wake(Word& word, int count);

// CPUs that this process may run on, at least 1; on macOS those of the fast kind.
int usable_cpus();

// Names the calling thread, in at most 15 characters.
void name_thread(const char* name);

// Features of the processor, by Linux's names; none where the system does not say.
std::set<std::string> processor_flags();
// Those of AArch64: Linux's, in the words AT_HWCAP and AT_HWCAP2 of the auxiliary vector, and macOS's, of the names that
// `sysctl hw.optional` lists with the value 1.
std::set<std::string> flags_of_words(std::uint64_t first, std::uint64_t second);
std::set<std::string> flags_of_names(const std::set<std::string>& names);

// Makes written instructions visible to those who run them.
void flush_instructions(char* begin, char* end);
// Tells the unwinder of the tables of a section .eh_frame, which ends with a zero, and to forget them.
void register_frames(void* section);
void deregister_frames(void* section);

// The signals of an access that the processor refuses, and whether one comes from the processor, not from `kill`.
#if defined(__APPLE__)
constexpr int kFaults[] = {SIGSEGV, SIGBUS};
#else
constexpr int kFaults[] = {SIGSEGV};
#endif
bool is_fault(const siginfo_t& info);

// Where a thread was when a signal came; 0 for what is not known.
struct Interrupted {
  std::uintptr_t instruction = 0;
  std::uintptr_t caller = 0;  // where a function without a frame returns to
  int access = 0;             // 1 a read, 2 a write; of x86 alone
};
Interrupted interrupted_of(const void* context);

// Unwinds a thread that ends itself (pthread_exit), as Python's do while it is finalized. macOS ends them without, and
// throws none.
#if defined(__APPLE__)
struct ThreadExit {};
#else
using ThreadExit = abi::__forced_unwind;
#endif

// The variables of the environment, and one of them, which is none where the process has more privileges than its user.
char** environment();
const char* variable(const char* name);

// Pairs of descriptors that other programs do not inherit; false where none are left.
bool make_sockets(int (&ends)[2]);
bool make_pipe(int (&ends)[2]);
// Sends without a signal where the other end is closed.
long send_quietly(int socket, const void* data, std::size_t size);

// Whether a process of this machine is gone, but for its exit code.
bool is_zombie(int process);

// Functions of OpenBLAS; null where this library was not linked with it.
struct OpenBlas {
  int (*get_num_threads)();
  void (*set_num_threads)(int count);
};
OpenBlas linked_openblas();

// Keeps the shared library that a function lies in until the process ends.
void keep_library(const void* function);

}  // namespace stablexla
