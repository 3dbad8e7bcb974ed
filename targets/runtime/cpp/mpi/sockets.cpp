#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace stablexla {
namespace {

constexpr int kGone = 1;           // an error is kGone plus the process that is gone
constexpr int kTooLong = 1 << 30;  // a message of more bytes than its receiver has room for
constexpr int kNoSuch = kTooLong + 1;
constexpr MpiHandle kFirstMade = 16;  // communicators of fewer processes
constexpr std::size_t kChunk = 64 << 10;

enum Kind : std::uint32_t { kData, kSynchronous, kMatched, kBarrier };

struct Header {
  std::uint32_t kind;
  std::int32_t tag;
  std::int64_t comm;
  std::uint64_t bytes;
  std::uint64_t token;  // of a synchronous message, which its receiver sends back
};

struct Request {
  std::atomic<bool> is_done{false};
  int error = 0;
  bool is_receive = false, is_free = false;  // the caller has let go of it
  int peer = 0;
  std::int64_t comm = 0;
  int tag = 0;
  char* data = nullptr;  // of a receive
  std::uint64_t bytes = 0, token = 0;
};

// A message that came before its receive.
struct Message {
  int peer;
  Header header;
  std::vector<char> data;
  bool is_whole = false;
  Request* wanted = nullptr;  // the receive that came meanwhile
};

struct Outgoing {
  Header header;
  const char* data;
  std::size_t sent;  // of header and data
  Request* request;  // null for none to tell
  std::vector<char> kept;
};

struct Peer {
  int socket = -1;
  bool is_gone = false;
  std::deque<Outgoing> outgoing;
  // What is being received: a header, then its message.
  Header header;
  std::size_t have = 0;
  bool in_body = false;
  Request* direct = nullptr;   // into the memory of a receive
  Message* message = nullptr;  // into memory of ours
  std::uint64_t barriers = 0;
};

// Guarded by one lock: there are few messages, and they are moved by whoever waits.
class Sockets {
 public:
  Sockets(int rank, const std::vector<int>& connections) : rank_(rank), peers_(connections.size()) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (static_cast<int>(i) == rank) continue;
      const int socket = peers_[i].socket = connections[i], on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    }
  }

  int send(const void* data, int bytes, int to, int tag, MpiHandle comm, bool synchronous, MpiHandle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const int peer = process_of(comm, to);
    if (peer < 0) return kNoSuch;
    auto* request = new Request;
    *handle = reinterpret_cast<MpiHandle>(request);
    request->peer = peer;
    request->token = ++tokens_;
    if (peers_[static_cast<std::size_t>(peer)].is_gone) {
      finish(request, kGone + peer);
      return 0;
    }
    if (synchronous) unmatched_[request->token] = request;
    const Header header{synchronous ? kSynchronous : kData, tag, comm, static_cast<std::uint64_t>(bytes), request->token};
    post(peer, {header, static_cast<const char*>(data), 0, synchronous ? nullptr : request, {}});
    return 0;
  }

  int receive(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const int peer = process_of(comm, from);
    if (peer < 0) return kNoSuch;
    auto* request = new Request;
    *handle = reinterpret_cast<MpiHandle>(request);
    request->is_receive = true;
    request->peer = peer;
    request->comm = comm;
    request->tag = tag;
    request->data = static_cast<char*>(data);
    request->bytes = static_cast<std::uint64_t>(bytes);
    const auto fits = [&](const Message& each) {
      return each.wanted == nullptr && each.peer == peer && each.header.comm == comm && each.header.tag == tag;
    };
    const auto found = std::find_if(messages_.begin(), messages_.end(), fits);
    if (found == messages_.end()) {
      if (peers_[static_cast<std::size_t>(peer)].is_gone)
        finish(request, kGone + peer);
      else
        receives_.push_back(request);
      return 0;
    }
    found->wanted = request;
    if (found->is_whole) deliver(found);
    return 0;
  }

  // Whether there is a whole message with that tag, from anybody; it is taken out then.
  bool probe(int tag, MpiHandle comm, MpiHandle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    progress();
    const auto fits = [&](const Message& each) {
      return each.is_whole && each.wanted == nullptr && each.header.comm == comm && each.header.tag == tag;
    };
    const auto found = std::find_if(messages_.begin(), messages_.end(), fits);
    if (found == messages_.end()) return false;
    *handle = reinterpret_cast<MpiHandle>(new Message(std::move(*found)));
    messages_.erase(found);
    return true;
  }

  int take(void* data, int bytes, MpiHandle* handle) {
    const std::unique_ptr<Message> message(reinterpret_cast<Message*>(*handle));
    *handle = 0;
    std::memcpy(data, message->data.data(), std::min(message->data.size(), static_cast<std::size_t>(bytes)));
    std::lock_guard<std::mutex> lock(mutex_);
    tell_matched(message->peer, message->header);
    return message->data.size() > static_cast<std::size_t>(bytes) ? kTooLong : 0;
  }

  int test(MpiHandle* handle, int* flag) {
    auto* request = reinterpret_cast<Request*>(*handle);
    if (!request->is_done.load(std::memory_order_acquire)) {
      std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      if (lock.owns_lock()) progress();  // else somebody else does
    }
    *flag = request->is_done.load(std::memory_order_acquire);
    if (*flag == 0) return 0;
    std::lock_guard<std::mutex> lock(mutex_);  // it was finished with the lock held
    const int error = request->error;
    delete request;
    *handle = 0;
    return error;
  }

  // Gives up a receive that nothing has come for.
  int cancel(MpiHandle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* request = reinterpret_cast<Request*>(handle);
    const auto found = std::find(receives_.begin(), receives_.end(), request);
    if (found == receives_.end()) return 0;
    receives_.erase(found);
    finish(request, 0);
    return 0;
  }

  // The memory of the request may be gone afterwards.
  int free(MpiHandle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* request = reinterpret_cast<Request*>(*handle);
    *handle = 0;
    if (request->is_done.load()) {
      delete request;
      return 0;
    }
    request->is_free = true;
    receives_.remove(request);
    waiting_.remove(request);
    request->data = nullptr;  // what still comes is dropped
    Peer& peer = peers_[static_cast<std::size_t>(request->peer)];
    for (Outgoing& each : peer.outgoing) {
      const bool is_own = each.request == request || (request->token != 0 && each.header.token == request->token);
      if (request->is_receive || !is_own || each.data == each.kept.data()) continue;
      each.kept.assign(each.data, each.data + each.header.bytes);
      each.data = each.kept.data();
    }
    const bool is_queued = std::any_of(peer.outgoing.begin(), peer.outgoing.end(),
                                       [&](const Outgoing& each) { return each.request == request; });
    const bool is_coming = peer.direct == request || std::any_of(messages_.begin(), messages_.end(),
                                                                [&](const Message& each) { return each.wanted == request; });
    if (!request->is_receive && unmatched_.erase(request->token) != 0) delete request;
    else if (!is_queued && !is_coming) delete request;
    return 0;
  }

  int barrier(MpiHandle* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* request = new Request;
    *handle = reinterpret_cast<MpiHandle>(request);
    request->token = ++barriers_;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (static_cast<int>(i) != rank_) post(static_cast<int>(i), {{kBarrier, 0, 0, 0, 0}, nullptr, 0, nullptr, {}});
    waiting_.push_back(request);
    look_at_barriers();
    return 0;
  }

  void add_group(MpiHandle comm, const std::vector<int>& processes) {
    std::lock_guard<std::mutex> lock(mutex_);
    groups_[comm] = processes;
  }

 private:
  int process_of(MpiHandle comm, int rank) const {
    if (comm == kSocketData || comm == kSocketControl)
      return rank >= 0 && rank < static_cast<int>(peers_.size()) ? rank : -1;
    const auto found = groups_.find(comm);
    const bool is_there = found != groups_.end() && rank >= 0 && rank < static_cast<int>(found->second.size());
    return is_there ? found->second[static_cast<std::size_t>(rank)] : -1;
  }

  void finish(Request* request, int error) {
    if (request->is_free) {
      delete request;
      return;
    }
    request->error = error;
    request->is_done.store(true, std::memory_order_release);
  }

  void post(int to, Outgoing what) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    if (peer.is_gone) {
      if (what.request != nullptr) finish(what.request, kGone + to);
      return;
    }
    if (to == rank_) return to_self(std::move(what));
    peer.outgoing.push_back(std::move(what));
    if (peer.outgoing.size() == 1) write_to(to);
  }

  // A process has messages for itself where several of its devices meet others.
  void to_self(Outgoing what) {
    Message message{rank_, what.header, {what.data, what.data + what.header.bytes}, true, nullptr};
    if (what.header.kind == kMatched) return matched(what.header.token);
    match(std::move(message));
    if (what.request != nullptr) finish(what.request, 0);
  }

  void match(Message message) {
    const auto fits = [&](const Request* each) {
      return each->peer == message.peer && each->comm == message.header.comm && each->tag == message.header.tag;
    };
    const auto found = std::find_if(receives_.begin(), receives_.end(), fits);
    if (found != receives_.end()) {
      message.wanted = *found;
      receives_.erase(found);
    }
    messages_.push_back(std::move(message));
    if (messages_.back().wanted != nullptr) deliver(std::prev(messages_.end()));
  }

  void deliver(std::list<Message>::iterator message) {
    Request* request = message->wanted;
    const bool is_long = message->data.size() > request->bytes;
    if (!is_long && request->data != nullptr) std::copy(message->data.begin(), message->data.end(), request->data);
    const int peer = message->peer;
    const Header header = message->header;
    messages_.erase(message);
    finish(request, is_long ? kTooLong : 0);
    tell_matched(peer, header);
  }

  void tell_matched(int peer, const Header& header) {
    if (header.kind == kSynchronous) post(peer, {{kMatched, 0, 0, 0, header.token}, nullptr, 0, nullptr, {}});
  }

  void matched(std::uint64_t token) {
    const auto found = unmatched_.find(token);
    if (found == unmatched_.end()) return;
    Request* request = found->second;
    unmatched_.erase(found);
    finish(request, 0);
  }

  void look_at_barriers() {
    waiting_.remove_if([this](Request* request) {
      int missing = -1;
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (static_cast<int>(i) == rank_ || peers_[i].barriers >= request->token) continue;
        missing = static_cast<int>(i);
        if (peers_[i].is_gone) break;
      }
      if (missing >= 0 && !peers_[static_cast<std::size_t>(missing)].is_gone) return false;
      finish(request, missing >= 0 ? kGone + missing : 0);
      return true;
    });
  }

  void gone(int process) {
    Peer& peer = peers_[static_cast<std::size_t>(process)];
    if (peer.is_gone) return;
    peer.is_gone = true;
    const int error = kGone + process;
    for (Outgoing& each : std::exchange(peer.outgoing, {}))
      if (each.request != nullptr) finish(each.request, error);
    if (peer.direct != nullptr) finish(std::exchange(peer.direct, nullptr), error);
    messages_.remove_if([&](Message& each) {
      if (each.peer != process || each.is_whole) return false;
      if (each.wanted != nullptr) finish(each.wanted, error);
      return true;
    });
    peer.message = nullptr;
    receives_.remove_if([&](Request* each) {
      if (each->peer != process) return false;
      finish(each, error);
      return true;
    });
    for (auto each = unmatched_.begin(); each != unmatched_.end();) {
      Request* request = each->second;
      each = request->peer == process ? unmatched_.erase(each) : std::next(each);
      if (request->peer == process) finish(request, error);
    }
    look_at_barriers();
  }

  void progress() {
    polled_.clear();
    for (const Peer& peer : peers_) {
      if (peer.socket < 0 || peer.is_gone) continue;
      const short events = peer.outgoing.empty() ? POLLIN : POLLIN | POLLOUT;
      polled_.push_back({peer.socket, events, 0});
    }
    if (polled_.empty() || poll(polled_.data(), polled_.size(), 0) <= 0) return;
    std::size_t next = 0;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].socket < 0 || peers_[i].is_gone || next == polled_.size()) continue;
      if (polled_[next].fd != peers_[i].socket) continue;
      const short found = polled_[next++].revents;
      if (found & POLLOUT) write_to(static_cast<int>(i));
      if (found & (POLLIN | POLLHUP | POLLERR)) read_from(static_cast<int>(i));
    }
  }

  void write_to(int process) {
    Peer& peer = peers_[static_cast<std::size_t>(process)];
    while (!peer.outgoing.empty() && !peer.is_gone) {
      Outgoing& what = peer.outgoing.front();
      const std::size_t all = sizeof(Header) + what.header.bytes;
      iovec parts[2];
      int count = 0;
      if (what.sent < sizeof(Header))
        parts[count++] = {reinterpret_cast<char*>(&what.header) + what.sent, sizeof(Header) - what.sent};
      const std::size_t of_data = what.sent < sizeof(Header) ? 0 : what.sent - sizeof(Header);
      if (of_data < what.header.bytes)
        parts[count++] = {const_cast<char*>(what.data) + of_data, what.header.bytes - of_data};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<std::size_t>(count);
      const ssize_t written = sendmsg(peer.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
      if (written < 0) return gone(process);
      what.sent += static_cast<std::size_t>(written);
      if (what.sent < all) continue;
      Request* request = what.request;
      peer.outgoing.pop_front();
      if (request != nullptr) finish(request, 0);
    }
  }

  void read_from(int process) {
    Peer& peer = peers_[static_cast<std::size_t>(process)];
    while (!peer.is_gone) {
      char* to = reinterpret_cast<char*>(&peer.header) + peer.have;
      std::size_t wanted = sizeof(Header) - peer.have;
      char dropped[kChunk / 16];
      if (peer.in_body) {
        wanted = peer.header.bytes - peer.have;
        if (peer.direct != nullptr && peer.direct->data != nullptr) to = peer.direct->data + peer.have;
        else if (peer.direct != nullptr) to = dropped, wanted = std::min(wanted, sizeof dropped);
        else to = peer.message->data.data() + peer.have;
      }
      const ssize_t got = recv(peer.socket, to, wanted, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
      if (got <= 0) return gone(process);
      peer.have += static_cast<std::size_t>(got);
      if (!peer.in_body && peer.have == sizeof(Header)) begin_body(process);
      if (peer.in_body && peer.have == peer.header.bytes) end_body(process);
    }
  }

  // A header has come whole: its message goes into a receive's memory, or into ours.
  void begin_body(int process) {
    Peer& peer = peers_[static_cast<std::size_t>(process)];
    peer.have = 0;
    const Header& header = peer.header;
    if (header.kind == kMatched) return matched(header.token);
    if (header.kind == kBarrier) {
      ++peer.barriers;
      return look_at_barriers();
    }
    peer.in_body = true;
    const auto fits = [&](const Request* each) {
      return each->peer == process && each->comm == header.comm && each->tag == header.tag;
    };
    const auto found = std::find_if(receives_.begin(), receives_.end(), fits);
    if (found != receives_.end() && (*found)->bytes >= header.bytes) {
      peer.direct = *found;
      receives_.erase(found);
      return;
    }
    messages_.push_back({process, header, std::vector<char>(header.bytes), false, nullptr});
    peer.message = &messages_.back();
    if (found != receives_.end()) {
      peer.message->wanted = *found;  // too long for it
      receives_.erase(found);
    }
  }

  void end_body(int process) {
    Peer& peer = peers_[static_cast<std::size_t>(process)];
    peer.in_body = false;
    peer.have = 0;
    if (peer.direct != nullptr) {
      finish(std::exchange(peer.direct, nullptr), 0);
      return tell_matched(process, peer.header);
    }
    Message* message = std::exchange(peer.message, nullptr);
    message->is_whole = true;
    if (message->wanted == nullptr) return;
    const auto at = std::find_if(messages_.begin(), messages_.end(), [&](const Message& each) { return &each == message; });
    deliver(at);
  }

  std::mutex mutex_;
  const int rank_;
  std::vector<Peer> peers_;
  std::vector<pollfd> polled_;
  std::list<Request*> receives_, waiting_;  // that nothing has come for; barriers
  std::list<Message> messages_;
  std::map<std::uint64_t, Request*> unmatched_;  // synchronous messages, by token
  std::map<MpiHandle, std::vector<int>> groups_;
  std::uint64_t tokens_ = 0, barriers_ = 0;
};

Sockets* the_sockets = nullptr;
using Processes = std::vector<int>;

// A number that all members find for themselves.
MpiHandle number_of(const Processes& processes) {
  std::uint64_t hash = 14695981039346656037u;
  for (int process : processes) hash = (hash ^ static_cast<std::uint64_t>(process + 1)) * 1099511628211u;
  return kFirstMade + static_cast<MpiHandle>(hash >> 8);
}

}  // namespace

MpiLibrary socket_library(int rank, const std::vector<int>& connections) {
  if (the_sockets != nullptr) throw std::runtime_error("the connections were made before");
  the_sockets = new Sockets(rank, connections);  // as long as the process
  MpiLibrary made;
  made.isend = [](const void* data, int bytes, MpiHandle, int to, int tag, MpiHandle comm, MpiHandle* request) {
    return the_sockets->send(data, bytes, to, tag, comm, false, request);
  };
  made.issend = [](const void* data, int bytes, MpiHandle, int to, int tag, MpiHandle comm, MpiHandle* request) {
    return the_sockets->send(data, bytes, to, tag, comm, true, request);
  };
  made.irecv = [](void* data, int bytes, MpiHandle, int from, int tag, MpiHandle comm, MpiHandle* request) {
    return the_sockets->receive(data, bytes, from, tag, comm, request);
  };
  made.mrecv = [](void* data, int bytes, MpiHandle, MpiHandle* message, void*) {
    return the_sockets->take(data, bytes, message);
  };
  made.test = [](MpiHandle* request, int* flag, void*) { return the_sockets->test(request, flag); };
  made.cancel = [](MpiHandle* request) { return the_sockets->cancel(*request); };
  made.request_free = [](MpiHandle* request) { return the_sockets->free(request); };
  made.improbe = [](int, int tag, MpiHandle comm, int* flag, MpiHandle* message, void*) {
    *flag = the_sockets->probe(tag, comm, message);
    return 0;
  };
  made.ibarrier = [](MpiHandle, MpiHandle* request) { return the_sockets->barrier(request); };
  made.comm_group = [](MpiHandle, MpiHandle* group) {
    *group = 0;
    return 0;
  };
  made.group_incl = [](MpiHandle, int count, const int* ranks, MpiHandle* group) {
    *group = reinterpret_cast<MpiHandle>(new Processes(ranks, ranks + count));
    return 0;
  };
  made.group_free = [](MpiHandle* group) {
    delete reinterpret_cast<Processes*>(*group);
    *group = 0;
    return 0;
  };
  made.comm_create_group = [](MpiHandle, MpiHandle group, int, MpiHandle* comm) {
    const auto& processes = *reinterpret_cast<const Processes*>(group);
    *comm = number_of(processes);
    the_sockets->add_group(*comm, processes);
    return 0;
  };
  made.comm_set_errhandler = [](MpiHandle, MpiHandle) { return 0; };
  made.error_string = [](int error, char* text, int* length) {
    *length = error >= kTooLong ? std::snprintf(text, 100, "a message of another length than its receiver expects")
                                : std::snprintf(text, 100, "process %d has ended, or cannot be reached", error - kGone);
    return 0;
  };
  made.name = "TCP";
  made.byte = made.request_null = made.errors_return = 0;
  made.any_source = -1;
  made.tag_limit = std::numeric_limits<int>::max();
  return made;
}

}  // namespace stablexla
