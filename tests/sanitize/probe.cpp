// Faults that each sanitizer has to report; a build that reports none of them is of no use.
#include <cstdlib>
#include <thread>

namespace {

int shared = 0;

}  // namespace

// Two threads write a variable, an integer overflows, and the end of an array is read beyond, which ends the process.
extern "C" int fault(int number) {
  std::thread other([] { shared += 1; });
  shared += 1;
  other.join();
  shared = 2147483647 + number;
  auto* array = static_cast<volatile int*>(std::malloc(4 * sizeof(int)));
  array[0] = shared;
  const int read = array[3 + number];
  std::free(const_cast<int*>(array));
  return read;
}
