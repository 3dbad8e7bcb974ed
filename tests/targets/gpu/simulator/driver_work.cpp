// Streams and events: work is done at once, or as late as a program that waits correctly allows.
#include "driver.h"

namespace simulator {

StreamState* stream_of(cuda::Stream handle, Result& error) {
  Driver& d = driver();
  error = cuda::kSuccess;
  if (!handle || handle == cuda::kLegacyStream || handle == cuda::kPerThreadStream) {
    return &d.legacy[std::size_t(device_now()->ordinal)];
  }
  auto* state = reinterpret_cast<StreamState*>(handle);
  if (!d.streams.count(state)) {
    error = cuda::kInvalidHandle;
    return nullptr;
  }
  if (state->device != device_now()) error = cuda::kInvalidContext;
  return state;
}

namespace {

void run_one(const Work& work) {
  Driver& d = driver();
  if (d.broken != cuda::kSuccess) return;
  try {
    work.run();
  } catch (const Fault& f) {
    d.broken = Result(f.code);
    d.report = f.what();
  }
}

}  // namespace

// Work that was handed in before `until`.
void drain(StreamState& stream, std::uint64_t until) {
  while (!stream.queue.empty() && stream.queue.front().number <= until) {
    Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    run_one(work);
  }
}

void drain_device(Device& device) {
  for (auto& [stream, owned] : driver().streams) {
    if (stream->device == &device) drain(*stream, ~std::uint64_t(0));
  }
  drain(driver().legacy[std::size_t(device.ordinal)], ~std::uint64_t(0));
}

void drain_all() {
  for (auto& device : driver().devices) drain_device(*device);
}

Result enqueue(cuda::Stream handle, std::function<void()> run, bool now) {
  Result error;
  StreamState* stream = stream_of(handle, error);
  if (error) return error;
  Driver& d = driver();
  // The legacy stream waits for the others and they for it.
  if (stream == &d.legacy[std::size_t(stream->device->ordinal)]) {
    for (auto& [other, owned] : d.streams) {
      if (other->device == stream->device && other->blocking) drain(*other, ~std::uint64_t(0));
    }
  } else if (stream->blocking) {
    drain(d.legacy[std::size_t(stream->device->ordinal)], ~std::uint64_t(0));
  }
  stream->queue.push_back({++d.work, std::move(run)});
  if (now || !d.settings.lazy) drain(*stream, ~std::uint64_t(0));
  return d.broken;
}

}  // namespace simulator

using namespace simulator;
using namespace stablexla::cuda;

#define ENTER(name, context)                                     \
  std::lock_guard<std::recursive_mutex> guard(driver().lock);    \
  if (Result failed = enter(#name, context)) return failed;

namespace {

EventState* event_of(Event handle) {
  auto* state = reinterpret_cast<EventState*>(handle);
  return driver().events.count(state) ? state : nullptr;
}

}  // namespace

extern "C" {

Result cuStreamCreate(Stream* stream, unsigned flags) {
  ENTER(cuStreamCreate, true);
  auto state = std::make_unique<StreamState>();
  state->device = device_now();
  state->blocking = !(flags & kStreamNonBlocking);
  *stream = reinterpret_cast<Stream>(state.get());
  driver().streams[state.get()] = std::move(state);
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream stream) {
  ENTER(cuStreamDestroy_v2, false);
  auto* state = reinterpret_cast<StreamState*>(stream);
  if (!driver().streams.count(state)) return kInvalidHandle;
  drain(*state, ~std::uint64_t(0));
  for (auto& [event, owned] : driver().events) {
    if (event->stream == state) event->stream = nullptr;
  }
  driver().streams.erase(state);
  return driver().broken;
}

Result cuStreamSynchronize(Stream stream) {
  ENTER(cuStreamSynchronize, true);
  Result error;
  StreamState* state = stream_of(stream, error);
  if (error == kInvalidHandle) return error;
  drain(*state, ~std::uint64_t(0));
  return driver().broken;
}

Result cuStreamQuery(Stream stream) {
  ENTER(cuStreamQuery, true);
  Result error;
  StreamState* state = stream_of(stream, error);
  if (error == kInvalidHandle) return error;
  if (!state->queue.empty()) {  // each question brings the work on by one
    drain(*state, state->queue.front().number);
    return driver().broken != kSuccess ? driver().broken : kNotReady;
  }
  return driver().broken;
}

Result cuEventCreate(Event* event, unsigned flags) {
  ENTER(cuEventCreate, true);
  auto state = std::make_unique<EventState>();
  state->device = device_now();
  state->timed = !(flags & kEventDisableTiming);
  *event = reinterpret_cast<Event>(state.get());
  driver().events[state.get()] = std::move(state);
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  ENTER(cuEventDestroy_v2, false);
  EventState* state = event_of(event);
  if (!state) return kInvalidHandle;
  if (state->pending && state->stream) drain(*state->stream, state->pending);
  driver().events.erase(state);
  return kSuccess;
}

Result cuEventRecord(Event event, Stream stream) {
  ENTER(cuEventRecord, true);
  EventState* state = event_of(event);
  if (!state) return kInvalidHandle;
  Result error;
  StreamState* on = stream_of(stream, error);
  if (error) return error;
  if (on->device != state->device) return kInvalidHandle;
  state->recorded = true;
  state->stream = on;
  std::uint64_t number = driver().work + 1;
  state->pending = number;
  return enqueue(stream, [state, number] {
    if (!event_of(reinterpret_cast<Event>(state))) return;
    if (state->pending == number) state->pending = 0;
    state->time = driver().executed;
  }, false);
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  ENTER(cuStreamWaitEvent, true);
  EventState* state = event_of(event);
  if (!state) return kInvalidHandle;
  if (!state->recorded || !state->pending) return kSuccess;
  StreamState* from = state->stream;
  std::uint64_t until = state->pending;
  return enqueue(stream, [from, until] {
    for (auto& legacy : driver().legacy) {
      if (&legacy == from) drain(*from, until);
    }
    if (driver().streams.count(from)) drain(*from, until);
  }, false);
}

Result cuEventSynchronize(Event event) {
  ENTER(cuEventSynchronize, false);
  EventState* state = event_of(event);
  if (!state) return kInvalidHandle;
  if (state->pending && state->stream) drain(*state->stream, state->pending);
  return driver().broken;
}

Result cuEventQuery(Event event) {
  ENTER(cuEventQuery, false);
  EventState* state = event_of(event);
  if (!state) return kInvalidHandle;
  if (state->pending && state->stream && !state->stream->queue.empty()) {
    drain(*state->stream, state->stream->queue.front().number);
    return driver().broken != kSuccess ? driver().broken : kNotReady;
  }
  return driver().broken;
}

Result cuEventElapsedTime(float* milliseconds, Event begin, Event end) {
  ENTER(cuEventElapsedTime, false);
  EventState *a = event_of(begin), *b = event_of(end);
  if (!a || !b || !a->recorded || !b->recorded || !a->timed || !b->timed) return kInvalidHandle;
  if (a->pending || b->pending) return kNotReady;
  *milliseconds = float(double(b->time - a->time) * 1e-9);
  return kSuccess;
}

}  // extern "C"
