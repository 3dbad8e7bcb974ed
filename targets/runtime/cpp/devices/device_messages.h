// Messages between devices of one run: arrays that were sent and not received yet, and receivers that wait.
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

// Who sends to whom on which channel.
using Route = std::tuple<std::int64_t, int, int>;  // channel, source, target

// Where a message is to be put. `word` becomes kThere when it has been, and changes when the run is stopped.
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

  // Copies the arrays to the receiver that waits, which is returned and must be woken, or into the queue.
  Receiver* send(const Collective& what, const Route& route, void** inputs);
  // Whether a message was there; otherwise the receiver waits now. `receiver.fits` says whether the arrays are alike.
  bool receive(const Route& route, Receiver& receiver);
  // Waits no more; false if a sender has begun to copy.
  bool withdraw(const Route& route, Receiver& receiver);
  void stop();  // wakes all who wait

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
