#include "released_gil.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "system.h"

namespace stablexla {
namespace {

std::atomic<bool> ending{false};
std::atomic<int> taking_back{0};
std::atomic<std::thread::id> last_thread;

}  // namespace

void ReleasedGil::take() {
  taking_back.fetch_add(1);
  if (ending.load() && last_thread.load() != std::this_thread::get_id()) {
    taking_back.fetch_sub(1);
    for (;;) pause();
  }
  if (state_ == nullptr) state_ = PyThreadState_New(interpreter_);
  PyEval_RestoreThread(state_);
  taking_back.fetch_sub(1);
}

void ReleasedGil::forget() {
  take();
  try {
    PyThreadState_Clear(state_);  // destructors of its threading.local may run Python
  } catch (ThreadExit&) {
    for (;;) pause();  // Python was finalized meanwhile
  }
  PyThreadState_DeleteCurrent();
}

bool is_ending() { return ending.load(); }

void begin_shutdown() {
  last_thread.store(std::this_thread::get_id());
  ending.store(true);
  PyThreadState* state = PyEval_SaveThread();
  // A process forked while another thread reacquired the GIL counts that thread for ever: hence the limit.
  for (int i = 0; i < 20000 && taking_back.load() > 0; ++i) std::this_thread::sleep_for(std::chrono::microseconds(50));
  PyEval_RestoreThread(state);
}

}  // namespace stablexla
