#include "system.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#if defined(__APPLE__)
#include <crt_externs.h>
#include <dlfcn.h>
#include <libkern/OSCacheControl.h>
#include <sys/sysctl.h>
#include <sys/ucontext.h>
#else
#include <linux/futex.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#endif
#if defined(__APPLE__) || defined(STABLEXLA_PARKING)  // the second is for tests
#include "parking.h"
#endif

// From the unwinder, which every C++ process has.
extern "C" void __register_frame(void* begin);
extern "C" void __deregister_frame(void* begin);
#if !defined(__APPLE__)
extern "C" {
extern char** environ;
__attribute__((weak)) int openblas_get_num_threads();
__attribute__((weak)) void openblas_set_num_threads(int count);
}
#endif

namespace stablexla {

// ---- waiting ---------------------------------------------------------------------------------------------------------

#if defined(__APPLE__) || defined(STABLEXLA_PARKING)
namespace {

std::atomic<ParkingLot*> the_lot{nullptr};

// A forked child has none of its parent's threads, and its locks may be in any state: it gets a new one. Leaked on
// purpose, as threads sleep in it at exit.
ParkingLot& lot() {
  ParkingLot* found = the_lot.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    the_lot.store(new ParkingLot, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, [] { the_lot.store(new ParkingLot); });
  });
  return *the_lot.load(std::memory_order_acquire);
}

}  // namespace

void futex_wait(Word& word, std::uint32_t seen) { lot().wait(word, seen, ParkingLot::kNoLimit); }

void futex_wait(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit.count() > 0) lot().wait(word, seen, limit);
}

void futex_wake(Word& word, int count) { lot().wake(&word, count); }
#else
namespace {

void wait_for(Word& word, std::uint32_t seen, const timespec* limit) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, limit, nullptr, 0);
}

}  // namespace

void futex_wait(Word& word, std::uint32_t seen) { wait_for(word, seen, nullptr); }

void futex_wait(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit.count() <= 0) return;
  const timespec time{static_cast<time_t>(limit.count() / 1000000000), static_cast<long>(limit.count() % 1000000000)};
  wait_for(word, seen, &time);
}

void futex_wake(Word& word, int count) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}
#endif

// ---- processors ------------------------------------------------------------------------------------------------------

std::set<std::string> flags_of_words(std::uint64_t first, std::uint64_t second) {
  // Of asm/hwcap.h, by bit; dashes for what is of no use here.
  constexpr const char* kNames[] = {
      "fp asimd - aes pmull sha1 sha2 crc32 atomics fphp asimdhp - asimdrdm jscvt fcma lrcpc - sha3 sm3 sm4 asimddp "
      "sha512 sve asimdfhm - uscat ilrcpc flagm",
      "- sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16"};
  std::uint64_t words[] = {first, second};
  std::set<std::string> found;
  for (int i = 0; i < 2; ++i) {
    std::istringstream names(kNames[i]);
    for (std::string name; names >> name; words[i] >>= 1)
      if ((words[i] & 1) != 0 && name != "-") found.insert(name);
  }
  return found;
}

namespace {

// Linux's name of a feature, and macOS's below hw.optional.
constexpr const char* kFeatures[][2] = {
    {"aes", "arm.FEAT_AES"},       {"asimddp", "arm.FEAT_DotProd"}, {"asimdfhm", "arm.FEAT_FHM"},
    {"asimdhp", "arm.FEAT_FP16"},  {"asimdrdm", "arm.FEAT_RDM"},    {"atomics", "arm.FEAT_LSE"},
    {"bf16", "arm.FEAT_BF16"},     {"crc32", "armv8_crc32"},        {"fcma", "arm.FEAT_FCMA"},
    {"flagm", "arm.FEAT_FlagM"},   {"flagm2", "arm.FEAT_FlagM2"},   {"fphp", "arm.FEAT_FP16"},
    {"frint", "arm.FEAT_FRINTTS"}, {"i8mm", "arm.FEAT_I8MM"},       {"ilrcpc", "arm.FEAT_LRCPC2"},
    {"jscvt", "arm.FEAT_JSCVT"},   {"lrcpc", "arm.FEAT_LRCPC"},     {"pmull", "arm.FEAT_PMULL"},
    {"sha1", "arm.FEAT_SHA1"},     {"sha2", "arm.FEAT_SHA256"},     {"sha3", "arm.FEAT_SHA3"},
    {"sha512", "arm.FEAT_SHA512"},
};

#if defined(__APPLE__)
// A number that sysctl has under a name; 0 where it has none.
std::int64_t number_of(const std::string& name) {
  std::int64_t value = 0;
  std::size_t size = sizeof value;  // it writes four bytes or eight: little-endian
  return sysctlbyname(name.c_str(), &value, &size, nullptr, 0) == 0 ? value : 0;
}
#endif

}  // namespace

std::set<std::string> flags_of_names(const std::set<std::string>& names) {
  std::set<std::string> found{"fp", "asimd"};  // all processors that macOS runs on
  for (const auto& [flag, name] : kFeatures)
    if (names.count(name) != 0) found.insert(flag);
  return found;
}

std::set<std::string> processor_flags() {
#if defined(__APPLE__)
  std::set<std::string> names;
  for (const auto& [flag, name] : kFeatures)
    if (number_of(std::string("hw.optional.") + name) == 1) names.insert(name);
  return flags_of_names(names);
#elif defined(__aarch64__)
  return flags_of_words(getauxval(16), getauxval(26));  // /proc/cpuinfo is the host's under an emulator
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
#endif
}

int usable_cpus() {
#if defined(__APPLE__)
  if (const std::int64_t fast = number_of("hw.perflevel0.logicalcpu"); fast > 0) return static_cast<int>(fast);
#else
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void name_thread(const char* name) {
#if defined(__APPLE__)
  pthread_setname_np(name);
#else
  pthread_setname_np(pthread_self(), name);
#endif
}

// ---- machine code ----------------------------------------------------------------------------------------------------

void flush_instructions(char* begin, char* end) {
#if defined(__APPLE__)
  sys_icache_invalidate(begin, static_cast<std::size_t>(end - begin));
#else
  __builtin___clear_cache(begin, end);  // nothing on x86
#endif
}

namespace {

// libgcc is told of a whole section, macOS's libunwind of each function in it.
void for_frames(void* section, void (*tell)(void*)) {
#if defined(__APPLE__)
  std::uint32_t head[2];  // the length of what follows it, and 0 for what functions have in common
  for (char* at = static_cast<char*>(section);; at += sizeof head[0] + head[0]) {
    std::memcpy(head, at, sizeof head[0]);
    if (head[0] == 0) return;
    std::memcpy(head, at, sizeof head);
    if (head[1] != 0) tell(at);
  }
#else
  tell(section);
#endif
}

}  // namespace

void register_frames(void* section) { for_frames(section, __register_frame); }
void deregister_frames(void* section) { for_frames(section, __deregister_frame); }

bool is_fault(const siginfo_t& info) {
  constexpr int kFirstOfUsers = 0x10000;  // macOS numbers what `kill` and its like send from here on; Linux below 1
  return info.si_code > 0 && info.si_code < kFirstOfUsers;
}

Interrupted interrupted_of(const void* context) {
  Interrupted found;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__APPLE__) && defined(__aarch64__)
  found.instruction = static_cast<std::uintptr_t>(machine->__ss.__pc);
  found.caller = static_cast<std::uintptr_t>(machine->__ss.__lr);
#elif defined(__aarch64__)
  found.instruction = static_cast<std::uintptr_t>(machine.pc);
  found.caller = static_cast<std::uintptr_t>(machine.regs[30]);
#elif defined(__x86_64__) && !defined(__APPLE__)
  found.instruction = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  found.caller = *reinterpret_cast<const std::uintptr_t*>(machine.gregs[REG_RSP]);
  found.access = machine.gregs[REG_ERR] & 2 ? 2 : 1;
#else
  static_cast<void>(machine);
#endif
  return found;
}

// ---- processes -------------------------------------------------------------------------------------------------------

char** environment() {
#if defined(__APPLE__)
  return *_NSGetEnviron();  // shared libraries have no `environ`
#else
  return environ;
#endif
}

const char* variable(const char* name) {
#if defined(__APPLE__)
  return issetugid() != 0 ? nullptr : std::getenv(name);
#else
  return secure_getenv(name);
#endif
}

namespace {

#if defined(__APPLE__)
// Another thread may start a program in between; it then inherits them.
void close_in_programs(int (&ends)[2]) {
  for (int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
}
#endif

}  // namespace

bool make_sockets(int (&ends)[2]) {
#if defined(__APPLE__)
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
  close_in_programs(ends);
  const int on = 1;
  for (int end : ends) setsockopt(end, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
  return true;
#else
  return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
#endif
}

bool make_pipe(int (&ends)[2]) {
#if defined(__APPLE__)
  if (pipe(ends) != 0) return false;
  close_in_programs(ends);
  return true;
#else
  return pipe2(ends, O_CLOEXEC) == 0;
#endif
}

long send_quietly(int socket, const void* data, std::size_t size) {
#if defined(__APPLE__)
  return send(socket, data, size, 0);  // the socket says so itself
#else
  return send(socket, data, size, MSG_NOSIGNAL);
#endif
}

bool is_zombie(int process) {
#if defined(__APPLE__)
  int wanted[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, process};
  kinfo_proc found{};
  std::size_t size = sizeof found;
  if (sysctl(wanted, 4, &found, &size, nullptr, 0) != 0) return false;
  return size == 0 || found.kp_proc.p_stat == SZOMB;
#else
  char path[64], state = 0;
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return errno == ENOENT;
  const int found = std::fscanf(file, "%*d (%*[^)]) %c", &state);
  std::fclose(file);
  return found == 1 && (state == 'Z' || state == 'X');
#endif
}

OpenBlas linked_openblas() {
#if defined(__APPLE__)  // whose linker refuses what no library has
  return {reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads")),
          reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))};
#else
  return {openblas_get_num_threads, openblas_set_num_threads};
#endif
}

void keep_library(const void* function) {
#if defined(__APPLE__)
  Dl_info info;
  if (dladdr(function, &info) != 0) dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
#else
  static_cast<void>(function);  // the linker has marked it (-z nodelete)
#endif
}

}  // namespace stablexla
