// Emulated threads of a GPU's block, as fibers on one thread of the CPU: each runs until it waits for the others. For
// tests of kernels whose threads synchronize, where there is no GPU.
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using Task = void (*)(void *context, int64_t lo, int64_t hi);
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kWords = 8;

struct Block {
  ucontext_t scheduler;
  std::vector<ucontext_t> fibers;
  std::vector<char *> stacks;
  std::vector<int32_t> slots;
  std::vector<uint64_t> words;
  std::vector<bool> done;
  int64_t current = 0;
  Task task = nullptr;
  void *context = nullptr;
};

thread_local Block *block = nullptr;

void run_fiber() {
  Block *mine = block;
  mine->task(mine->context, mine->current, mine->current + 1);
  mine->done[mine->current] = true;
  swapcontext(&mine->fibers[mine->current], &mine->scheduler);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void stablexla_emulated_threads(Task task, void *context, int64_t n,
                                                                                  int64_t) {
  Block own;
  Block *outer = block;
  block = &own;
  own.fibers.resize(n);
  own.slots.resize(n);
  own.words.resize(n * kWords);
  own.done.assign(n, false);
  own.task = task;
  own.context = context;
  for (int64_t i = 0; i < n; ++i) {
    own.stacks.push_back(static_cast<char *>(std::malloc(kStackBytes)));
    getcontext(&own.fibers[i]);
    own.fibers[i].uc_stack.ss_sp = own.stacks[i];
    own.fibers[i].uc_stack.ss_size = kStackBytes;
    own.fibers[i].uc_link = nullptr;
    makecontext(&own.fibers[i], run_fiber, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (int64_t i = 0; i < n; ++i) {
      if (own.done[i]) continue;
      any = true;
      own.current = i;
      swapcontext(&own.scheduler, &own.fibers[i]);
    }
  }
  for (char *stack : own.stacks) std::free(stack);
  block = outer;
}

// __syncthreads: every thread of the block arrives before any continues.
extern "C" __attribute__((visibility("default"))) void stablexla_emulated_barrier() {
  Block *mine = block;
  swapcontext(&mine->fibers[mine->current], &mine->scheduler);
}

// The number of the thread that runs.
extern "C" __attribute__((visibility("default"))) int64_t stablexla_emulated_self() { return block->current; }

// A thread's words for exchange, readable by all after a barrier.
extern "C" __attribute__((visibility("default"))) uint64_t *stablexla_emulated_words(int64_t thread) {
  return &block->words[thread * kWords];
}

// shfl.bfly: the value of the thread whose number differs in the bits of `offset`.
extern "C" __attribute__((visibility("default"))) int32_t stablexla_emulated_shuffle(int32_t value, int32_t offset) {
  Block *mine = block;
  int64_t self = mine->current;
  mine->slots[self] = value;
  stablexla_emulated_barrier();
  int32_t found = mine->slots[self ^ offset];
  stablexla_emulated_barrier();
  return found;
}
