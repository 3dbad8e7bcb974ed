// Memory that kernels take for themselves while they run, such as the work space of LAPACK: a run without it ends.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "stopping.h"

namespace {

// Stands before each block; the blocks of a thread are a list, so that those of a kernel that is left are freed.
struct alignas(alignof(std::max_align_t)) Header {
  Header *previous, *next;
};

thread_local Header* last = nullptr;

void release(Header* header) {
  (header->next != nullptr ? header->next->previous : last) = header->previous;
  if (header->previous != nullptr) header->previous->next = header->next;
  std::free(header);
}

// Leaves the kernel.
[[noreturn]] void leave() {
  const stablexla::Innermost& here = stablexla::innermost_run_here;
  if (here.run == nullptr) {
    std::fputs("stablexla: no memory for the work space of a kernel\n", stderr);
    std::abort();
  }
  here.run->stop(stablexla::Ending::kNoMemory);
  _longjmp(*here.way_out, 1);
}

}  // namespace

// In the place of C's functions in generated code.
extern "C" __attribute__((visibility("default"))) void* stablexla_malloc(std::size_t bytes) {
  auto* header = bytes > ~std::size_t(0) - sizeof(Header) ? nullptr : std::malloc(sizeof(Header) + bytes);
  if (header == nullptr) {
    while (last != nullptr) release(last);
    leave();
  }
  last = new (header) Header{last, nullptr};
  if (last->previous != nullptr) last->previous->next = last;
  return last + 1;
}

extern "C" __attribute__((visibility("default"))) void stablexla_free(void* data) {
  if (data != nullptr) release(static_cast<Header*>(data) - 1);
}
