// Point-to-point messages between devices of one run: arrays sent and not received yet, and waiting receivers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "collective.h"
#include "waiting.h"

namespace stablexla {

// Key of a message queue.
using Route = std::tuple<std::int64_t, int, int>;  // channel, source, target

// A pending receive. `word` becomes kThere when the message has been copied, and changes when the run is stopped.
struct Receiver {
  static constexpr std::uint32_t kThere = 1, kStopped = 1u << 31;

  const Collective* what;
  void** outputs;
  Word word{0};
  bool fits = true;
};

class DeviceMessages {
 public:
  struct Unreceived {
    const Collective* what;
    Route route;
  };

  // Copies the arrays to the waiting receiver, which is returned and must be woken, or else into the queue.
  Receiver* send(const Collective& what, const Route& route, void** inputs);
  // Returns whether a message was queued; otherwise the receiver is enqueued. `receiver.fits`: types and sizes match.
  bool receive(const Route& route, Receiver& receiver);
  // Cancels a receive; false if a sender has begun to copy.
  bool withdraw(const Route& route, Receiver& receiver);
  void stop();  // wakes all receivers

  std::vector<Unreceived> unreceived();
  void clear();

 private:
  struct Message {
    const Collective* what;
    std::vector<std::vector<char>> arrays;
  };
  struct Queue {
    std::deque<Message> messages;
    Receiver* receiver = nullptr;
  };

  std::mutex mutex_;
  std::map<Route, Queue> queues_;
};

}  // namespace stablexla
