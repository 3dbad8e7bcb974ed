#include "guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "stopping.h"

namespace stablexla {
namespace {

// Memory that was not written is a NaN of every floating-point type, and -1; canaries are something else.
constexpr int kUnwritten = 0xFF;
constexpr char kCanary = static_cast<char>(0xA5);
// Arrays of this size may be stored past the caches, by instructions that need the alignment of results; see arena.py.
constexpr std::size_t kAlignedFrom = std::size_t(1) << 20, kAlignment = 64;
// An access that is further away is of no array.
constexpr std::int64_t kReach = std::int64_t(1) << 30;

std::size_t page() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uintptr_t round_up(std::uintptr_t value, std::size_t step) { return (value + step - 1) / step * step; }

bool is_intact(const char* first, const char* last) {
  return first == last || (*first == kCanary && std::memcmp(first, first + 1, static_cast<std::size_t>(last - first) - 1) == 0);
}

}  // namespace

Guard::~Guard() {
  for (const Mapping& each : mappings_) munmap(each.start, each.size);
}

char* Guard::place(GuardedRole role, std::int64_t number, std::size_t bytes, const void* from, bool is_read_only,
                   void* result) {
  const std::size_t inside = round_up(std::max<std::size_t>(bytes, 1), page()), size = inside + 2 * page();
  void* mapped = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  mappings_.push_back({static_cast<char*>(mapped), size});
  char* first = static_cast<char*>(mapped) + page();
  if (mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) return nullptr;
  const std::size_t taken = bytes < kAlignedFrom ? bytes : round_up(bytes, kAlignment);
  // The arena lies at the start of its pages, as main knows where its temporaries are in it.
  char* data = end_ == GuardedEnd::kEnds && role != GuardedRole::kArena ? first + inside - taken : first;
  arrays_.push_back({first, first + inside, data, bytes, role, number, result});
  draw(arrays_.back());
  if (from != nullptr) std::memcpy(data, from, bytes);
  if (is_read_only) mprotect(first, inside, PROT_READ);
  return data;
}

// Fills the array with what says that it was not written, and the rest of its pages with canaries.
void Guard::draw(const Array& array) {
  std::memset(array.first, kCanary, static_cast<std::size_t>(array.data - array.first));
  std::memset(array.data, kUnwritten, array.bytes);
  char* behind = array.data + array.bytes;
  std::memset(behind, kCanary, static_cast<std::size_t>(array.last - behind));
}

void Guard::return_to(char* data, void* result) {
  for (Array& array : arrays_)
    if (array.data == data) array.result = result;
}

void Guard::give_back() const {
  for (const Array& array : arrays_)
    if (array.result != nullptr) std::memcpy(array.result, array.data, array.bytes);
}

void Guard::add_temporary(char* data, std::size_t bytes, std::int64_t number) {
  const auto start = reinterpret_cast<std::uintptr_t>(data);
  char* first = data - start % page();
  char* last = data + (round_up(start + bytes, page()) - start);
  if (!has_temporaries_) {  // from here on they are the arena
    const auto is_arena = [](const Array& each) { return each.role == GuardedRole::kArena; };
    arrays_.erase(std::remove_if(arrays_.begin(), arrays_.end(), is_arena), arrays_.end());
    has_temporaries_ = true;
  }
  arrays_.push_back({first, last, data, bytes, GuardedRole::kTemporary, number, nullptr});
  draw(arrays_.back());
  // where the system gives no more of these, the canaries are left
  mprotect(first - page(), page(), PROT_NONE);
  mprotect(last, page(), PROT_NONE);
}

bool Guard::check() {
  if (has_found()) return false;
  for (const Array& array : arrays_) {
    const char* behind = array.data + array.bytes;
    if (!is_intact(behind, array.last)) {
      const char* at = std::find_if(behind, static_cast<const char*>(array.last), [](char c) { return c != kCanary; });
      return note(&array, at, Access::kWrite);
    }
    if (!is_intact(array.first, array.data)) {
      const char* at = array.data - 1;
      while (*at == kCanary) --at;
      return note(&array, at, Access::kWrite);
    }
  }
  return true;
}

bool Guard::has(std::uintptr_t address) const {
  const char* at = reinterpret_cast<const char*>(address);
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [at](const Mapping& each) { return at >= each.start && at < each.start + each.size; });
}

void Guard::note(std::uintptr_t address, Access access) {
  const char* at = reinterpret_cast<const char*>(address);
  const Array* nearest = nullptr;
  std::int64_t least = kReach;
  for (const Array& array : arrays_) {
    const std::int64_t before = array.data - at, behind = at - (array.data + array.bytes) + 1;
    const std::int64_t distance = std::max<std::int64_t>({before, behind, 0});
    if (distance < least) {
      least = distance;
      nearest = &array;
    }
  }
  note(nearest, at, access);
}

bool Guard::note(const Array* nearest, const char* address, Access access) {
  int nothing = kNothing;
  if (!state_.compare_exchange_strong(nothing, kNoting)) return false;
  found_.kernel = kernel_.load(std::memory_order_relaxed);
  found_.access = access;
  found_.address = reinterpret_cast<std::uintptr_t>(address);
  found_.is_near = nearest != nullptr;
  if (nearest != nullptr) {
    found_.role = nearest->role;
    found_.number = nearest->number;
    found_.bytes = nearest->bytes;
    found_.offset = address - nearest->data;
  }
  state_.store(kNoted, std::memory_order_release);
  return false;
}

}  // namespace stablexla

using stablexla::innermost_run_here;

extern "C" void stablexla_guard_array(std::int64_t address, std::int64_t bytes, std::int64_t number) {
  if (innermost_run_here.guard != nullptr)
    innermost_run_here.guard->add_temporary(reinterpret_cast<char*>(address), static_cast<std::size_t>(bytes), number);
}

extern "C" void stablexla_guard_fill(std::int64_t address, std::int64_t bytes) {
  if (innermost_run_here.guard != nullptr)
    std::memset(reinterpret_cast<char*>(address), stablexla::kUnwritten, static_cast<std::size_t>(bytes));
}

extern "C" void stablexla_guard_kernel(std::int64_t number) {
  if (innermost_run_here.guard != nullptr) innermost_run_here.guard->begin_kernel(number);
}

extern "C" void stablexla_guard_check(std::int64_t number) {
  const stablexla::Innermost& here = innermost_run_here;
  if (here.guard == nullptr) return;
  if (!here.guard->check()) here.run->stop(stablexla::Ending::kOutside);
  here.guard->begin_kernel(-1);
  stablexla_check(number);  // also where a thread of the pool has left the kernel
}
