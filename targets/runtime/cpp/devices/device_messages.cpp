#include "device_messages.h"

#include <cstring>
#include <utility>

namespace stablexla {
namespace {

bool same_sizes(const Collective& sent, const Collective& wanted) {
  if (sent.operands.size() != wanted.operands.size()) return false;
  for (std::size_t i = 0; i < sent.operands.size(); ++i)
    if (sent.operands[i].input_type != wanted.operands[i].output_type) return false;
  return true;
}

}  // namespace

Receiver* DeviceMessages::send(const Collective& what, const Route& route, void** inputs) {
  Receiver* receiver = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    receiver = std::exchange(queues_[route].receiver, nullptr);
  }
  if (receiver != nullptr) {
    receiver->fits = same_sizes(what, *receiver->what);
    for (std::size_t i = 0; receiver->fits && i < what.operands.size(); ++i)
      std::memcpy(receiver->outputs[i], inputs[i], static_cast<std::size_t>(what.operands[i].input_bytes));
    return receiver;
  }
  Message message{&what, {}};
  for (std::size_t i = 0; i < what.operands.size(); ++i) {
    const char* bytes = static_cast<const char*>(inputs[i]);
    message.arrays.emplace_back(bytes, bytes + what.operands[i].input_bytes);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  Queue& queue = queues_[route];
  receiver = std::exchange(queue.receiver, nullptr);
  if (receiver == nullptr) {
    queue.messages.push_back(std::move(message));
    return nullptr;
  }
  lock.unlock();  // the message has arrived meanwhile
  receiver->fits = same_sizes(what, *receiver->what);
  for (std::size_t i = 0; receiver->fits && i < message.arrays.size(); ++i)
    std::memcpy(receiver->outputs[i], message.arrays[i].data(), message.arrays[i].size());
  return receiver;
}

bool DeviceMessages::receive(const Route& route, Receiver& receiver) {
  Message message;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Queue& queue = queues_[route];
    if (queue.messages.empty()) {
      queue.receiver = &receiver;
      return false;
    }
    message = std::move(queue.messages.front());
    queue.messages.pop_front();
  }
  receiver.fits = same_sizes(*message.what, *receiver.what);
  for (std::size_t i = 0; receiver.fits && i < message.arrays.size(); ++i)
    std::memcpy(receiver.outputs[i], message.arrays[i].data(), message.arrays[i].size());
  return true;
}

bool DeviceMessages::withdraw(const Route& route, Receiver& receiver) {
  std::lock_guard<std::mutex> lock(mutex_);
  Queue& queue = queues_[route];
  if (queue.receiver != &receiver) return false;
  queue.receiver = nullptr;
  return true;
}

// Under the lock, so that the receivers are still alive.
void DeviceMessages::stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [route, queue] : queues_) {
    if (queue.receiver == nullptr) continue;
    queue.receiver->word.fetch_or(Receiver::kStopped);
    futex_wake(queue.receiver->word, 1);
  }
}

std::vector<DeviceMessages::Unreceived> DeviceMessages::unreceived() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Unreceived> found;
  for (const auto& [route, queue] : queues_)
    for (const Message& message : queue.messages) found.push_back({message.what, route});
  return found;
}

void DeviceMessages::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  queues_.clear();
}

}  // namespace stablexla
