#include "blas_threads.h"

#include <mutex>

namespace {

std::mutex mutex;
int (*get_num_threads)() = nullptr;
void (*set_num_threads)(int) = nullptr;
int users = 0, before = 1;

}  // namespace

namespace stablexla {

void set_blas_functions(std::uintptr_t get, std::uintptr_t set) {
  std::lock_guard lock(mutex);
  if (users > 0) return;
  get_num_threads = reinterpret_cast<int (*)()>(get);
  set_num_threads = reinterpret_cast<void (*)(int)>(set);
}

}  // namespace stablexla

extern "C" void stablexla_blas_alone_begin() {
  std::lock_guard lock(mutex);
  if (users++ > 0 || get_num_threads == nullptr || set_num_threads == nullptr) return;
  before = get_num_threads();
  if (before > 1) set_num_threads(1);
}

extern "C" void stablexla_blas_alone_end() {
  std::lock_guard lock(mutex);
  if (--users > 0 || set_num_threads == nullptr) return;
  if (before > 1) set_num_threads(before);
  before = 1;
}
