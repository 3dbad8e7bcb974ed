// Handlers of XLA's typed foreign function interface, written as its users write them, with the header of jaxlib.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// y = scale * x + the sum of the offsets; what it was told comes back as numbers.
static ffi::Error Scaled(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, ffi::ResultBuffer<ffi::S64> told,
                         float scale, ffi::Span<const std::int64_t> offsets, std::string_view mode, bool loud) {
  if (mode == "fail") return ffi::Error::InvalidArgument("mode is " + std::string(mode));
  float sum = 0;
  for (std::int64_t each : offsets) sum += static_cast<float>(each);
  for (std::size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = scale * x.typed_data()[i] + sum;
  told->typed_data()[0] = static_cast<std::int64_t>(x.dimensions().size());
  told->typed_data()[1] = x.dimensions().size() ? x.dimensions().front() : -1;
  told->typed_data()[2] = static_cast<std::int64_t>(mode.size());
  told->typed_data()[3] = loud;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(scaled, Scaled,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::S64>>()
                                  .Attr<float>("scale")
                                  .Attr<ffi::Span<const std::int64_t>>("offsets")
                                  .Attr<std::string_view>("mode")
                                  .Attr<bool>("loud"));

// Copies through memory that it asks for, in a task of the thread pool.
static ffi::Error Borrowing(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y, ffi::ScratchAllocator scratch,
                            ffi::ThreadPool pool) {
  auto memory = scratch.Allocate(x.size_bytes() + 1, 64);
  if (!memory.has_value() || reinterpret_cast<std::uintptr_t>(*memory) % 64) return ffi::Error::Internal("no memory");
  std::atomic<bool> done{false};
  pool.Schedule([&] {
    std::copy_n(static_cast<char*>(x.untyped_data()), x.size_bytes(), static_cast<char*>(*memory));
    done = true;
  });
  while (!done) std::this_thread::yield();
  std::copy_n(static_cast<char*>(*memory), x.size_bytes(), static_cast<char*>(y->untyped_data()));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(borrowing, Borrowing,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::ThreadPool>());

// The elements in the order in which they lie in memory.
static ffi::Error Raw(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (std::size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(raw, Raw,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Adds to what the result holds already.
static ffi::Error Increase(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (std::size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] += 1;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(increase, Increase,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Finishes on another thread after it has returned.
static ffi::Future Later(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, bool fails) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([x, y, fails, promise = std::move(promise)]() mutable {
    for (std::size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = -x.typed_data()[i];
    if (fails)
      promise.SetError(ffi::Error::Internal("too late"));
    else
      promise.SetAvailable();
  }).detach();
  return future;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    later, Later,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attr<bool>("fails"));

// What is made once for a place in a program, counted, and given to each of its calls.
static std::atomic<int> alive{0};

struct Counter {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit Counter(std::int64_t first) : next(first) { ++alive; }
  ~Counter() { --alive; }
  std::atomic<std::int64_t> next;
};

ffi::TypeId Counter::id = {};
ffi::TypeInfo Counter::info = ffi::MakeTypeInfo<Counter>();

static ffi::ErrorOr<std::unique_ptr<Counter>> MakeCounter(std::int64_t first) {
  if (first < 0) return ffi::Unexpected(ffi::Error::InvalidArgument("counting begins at 0"));
  return std::make_unique<Counter>(first);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(make_counter, MakeCounter, ffi::Ffi::BindInstantiate().Attr<std::int64_t>("first"));

static ffi::Error Count(Counter* counter, ffi::ResultBuffer<ffi::S64> number) {
  number->typed_data()[0] = counter->next++;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    count_up, Count, ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::Buffer<ffi::S64>>());

extern "C" void* counter_id() { return &Counter::id; }
extern "C" void* counter_info() { return &Counter::info; }
extern "C" int counters_alive() { return alive; }
