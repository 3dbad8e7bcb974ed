// Runs that the caller does not wait for: one thread takes them in their order.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

namespace stablexla::pjrt {

// Adds a run whose results take so many bytes; waits while too many runs or bytes are in the queue.
void enqueue(std::size_t bytes, std::function<void()> run);

// Held from reading the arguments of a run until it is in the queue.
std::mutex& turn();

// Waits until all runs are done.
void drain();

}  // namespace stablexla::pjrt
