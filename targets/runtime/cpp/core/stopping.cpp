#include "stopping.h"

namespace stablexla {

std::atomic<std::uint32_t> news{0};
thread_local const Limit* innermost_limit = nullptr;
thread_local Innermost innermost_run_here;

RunControl::RunControl() : limit_(innermost_limit), outer_(innermost_run_here.run) {}

RunControl::~RunControl() {
  if (own_.load(std::memory_order_relaxed) != Ending::kNone) news.fetch_sub(1);
}

void RunControl::stop(Ending why) {
  Ending none = Ending::kNone;
  if (own_.compare_exchange_strong(none, why)) news.fetch_add(1);
}

RunEnd RunControl::ended() const {
  const std::int64_t at = place.load(std::memory_order_relaxed);
  if (const Ending own = own_.load(std::memory_order_acquire); own != Ending::kNone) return {own, at, 0};
  for (const Limit* limit = limit_; limit != nullptr; limit = limit->outer)
    if (const Ending said = limit->ending.load(std::memory_order_acquire); said != Ending::kNone)
      return {said, at, limit->seconds};
  const bool is_outer = outer_ != nullptr && outer_->ended().why != Ending::kNone;
  return {is_outer ? Ending::kOuter : Ending::kNone, at, 0};
}

__attribute__((noinline)) bool enter(Entry entry, void** packed, jmp_buf& way_out) {
  if (_setjmp(way_out) != 0) return false;
  entry(packed);
  return true;
}

}  // namespace stablexla

extern "C" const void* stablexla_news_address() { return &stablexla::news; }

extern "C" void stablexla_look_around(std::int64_t place) {
  const stablexla::Innermost& here = stablexla::innermost_run_here;
  if (here.run == nullptr) return;
  if (here.is_caller) here.run->look_for_signals();
  if (!here.run->is_stopped()) return;
  std::int64_t none = -1;
  here.run->place.compare_exchange_strong(none, place);
  _longjmp(*here.way_out, 1);
}

extern "C" void stablexla_check(std::int64_t place) {
  if (stablexla::news.load(std::memory_order_relaxed) != 0) stablexla_look_around(place);
}
