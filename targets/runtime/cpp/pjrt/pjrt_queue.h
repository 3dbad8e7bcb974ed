// Runs that the caller does not wait for: one thread takes them in their order.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

namespace stablexla::pjrt {

// Waits while too many runs or bytes are in the queue for results of so many bytes, and holds the lock on `turn()` then;
// false, without it, when the wait was interrupted.
bool wait_for_room(std::size_t bytes, std::unique_lock<std::mutex>& lock);

// Adds a run whose results take so many bytes.
void enqueue(std::size_t bytes, std::function<void()> run);

// Held from reading the arguments of a run until it is in the queue.
std::mutex& turn();

// Ends the runs that are in the queue now, before their time.
void stop_queue();

// Ends all runs, and waits until they have: what is in the queue has no effects but results, which nobody will read.
void drain();

}  // namespace stablexla::pjrt
