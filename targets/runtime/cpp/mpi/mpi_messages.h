// Messages in flight, and polling waits for them: with a time limit, failure detection, and back-off.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "memory_pool.h"
#include "mpi_control.h"
#include "mpi_library.h"
#include "transport.h"

namespace stablexla {

class MpiMessages;

// One thread's wait for devices in other processes. It is over at once where the run has failed elsewhere.
class MpiWait {
 public:
  // At `place`, described by `text`, for devices `awaited`; those that wait are `here`. Nothing is copied until the
  // wait has proved to be a long one.
  MpiWait(MpiControl& control, const Place& place, const std::string& text, const std::vector<int>& here,
          const std::vector<int>& awaited, const Waiting& waiting);
  ~MpiWait();
  MpiWait(const MpiWait&) = delete;

  // Between two polls, for these messages if there are any; false when the wait is given up.
  bool pause(const MpiMessages* messages = nullptr);
  bool is_over() const { return given_up_; }
  void fail(std::string why);
  Failure failure();

 private:
  bool look(const MpiMessages* messages);

  MpiControl& control_;
  const Waiting& waiting_;
  MpiControl::Wait wait_;
  const std::string& text_;
  const std::vector<int>&here_, &awaited_;
  bool known_ = false, asked_ = false, given_up_ = false;
  std::string why_;
  unsigned spins_ = 0;
  Clock::time_point since_, next_look_, next_question_, grace_;
};

// The messages of one collective. Those still in flight at the end are cancelled.
class MpiMessages {
 public:
  MpiMessages(const MpiLibrary& mpi, MpiHandle comm, int tag) : mpi_(mpi), comm_(comm), tag_(tag) {}
  ~MpiMessages();
  MpiMessages(const MpiMessages&) = delete;

  // Peers are ranks. `stage` disambiguates messages between the same two processes whose order they do not agree on.
  void receive(int peer, void* data, std::int64_t bytes, int stage = 0);
  void send(int peer, const void* data, std::int64_t bytes, int stage = 0) { start(mpi_.isend, peer, data, bytes, stage); }
  void send_synchronous(int peer, const void* data, std::int64_t bytes) { start(mpi_.issend, peer, data, bytes, 0); }
  std::size_t count() const { return requests_.size(); }
  bool finish(std::size_t begin, std::size_t end, MpiWait& wait);
  bool finish(MpiWait& wait) { return finish(0, requests_.size(), wait); }
  bool is_done(std::size_t begin, std::size_t end, MpiWait& wait);
  std::vector<int> heard() const;  // ranks from which something was received
  // Whether a message was received by rendezvous, out of its sender's memory: where the sender has failed since, that
  // memory may have been overwritten.
  bool took_from_senders() const { return takes_from_senders_; }
  // Allocates a buffer that lives as long as messages may be received into it.
  char* room(std::size_t bytes);

 private:
  struct Request {
    MpiHandle handle = 0;
    int peer = 0;
    bool is_receive = false;
  };
  bool withdraw();
  // Without a function to send, receives.
  void start(decltype(MpiLibrary::isend) send, int peer, const void* data, std::int64_t bytes, int stage);

  const MpiLibrary& mpi_;
  const MpiHandle comm_;
  const int tag_;
  std::vector<Request> requests_;
  std::vector<Block> rooms_;
  bool takes_from_senders_ = false;
  int error_ = 0;
};

}  // namespace stablexla
