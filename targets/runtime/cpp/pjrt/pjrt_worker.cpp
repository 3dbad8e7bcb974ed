#include "pjrt_worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "system.h"

namespace stablexla::pjrt {
namespace {

// The worker's own code. It ends with this process, as `serving.connect` has it: its two last arguments are the socket and
// a pipe whose other end is here. The first is the folder of the package, which Python may not know.
constexpr const char kCode[] =
    "import sys; sys.path.append(sys.argv[1]); from stablexla.pjrt.serving import main; main()";
constexpr char kKind[8] = {'a', 's', 'k'};

// The head of a message of stablexla/processes/wire.py.
struct Head {
  char kind[8];
  std::uint64_t values, data;
};

struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where this library lies.
std::string own_path() {
  Dl_info info;
  return dladdr(reinterpret_cast<const void*>(&own_path), &info) != 0 ? info.dli_fname : "";
}

// The folder that the package lies in.
std::string packages() {
  const std::string path = own_path();
  const std::size_t package = path.rfind("/stablexla/targets/runtime/");
  return package != std::string::npos ? path.substr(0, package) : "/";
}

// The Python of the environment that this library is installed in: of PREFIX/lib/python3.13/site-packages that is
// PREFIX/bin/python3.13, or where there is none, as in Debian's /usr/local, python3.13 on the path.
std::string interpreter() {
  if (const char* given = variable("STABLEXLA_PYTHON"); given != nullptr && *given != 0) return given;
  const std::string path = packages();
  const std::size_t end = path.rfind('/'), python = path.rfind("/python", end);
  if (end == std::string::npos || python == std::string::npos) return "python3";
  const std::string name = path.substr(python + 1, end - python - 1);
  const std::string found = path.substr(0, path.rfind("/lib", python)) + "/bin/" + name;
  return access(found.c_str(), X_OK) == 0 ? found : name;
}

class Worker {
 public:
  PJRT_Error* ask(const char* what, const std::vector<std::string_view>& parts, std::size_t number, Answer& answer) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (owner_ != getpid()) forget();  // a fork, whose parent has the process
    const bool is_new = link_ < 0;
    if (is_new) start();
    try {
      send(what, parts, number);
      return receive(answer);
    } catch (const Lost& lost) {
      const std::string how = end();
      const std::string program = interpreter();
      if (is_new)
        return error(kFailedPrecondition, "compiling needs Python with stablexla, and " + program + " " + how +
                                              "; STABLEXLA_PYTHON names another");
      return error(kInternal, std::string("the process that compiles, ") + program + ", " + how + " (" + lost.what() +
                                  "); the next program gets another one");
    }
  }

 private:
  void forget() {
    for (int* each : {&link_, &lifeline_})
      if (*each >= 0) close(*each), *each = -1;
    process_ = -1;
    owner_ = getpid();
  }

  void start() {
    int links[2], pipes[2];
    if (!make_sockets(links)) throw std::runtime_error("no socket is left");
    if (!make_pipe(pipes)) {
      close(links[0]), close(links[1]);
      throw std::runtime_error("no pipe is left");
    }
    link_ = links[0], lifeline_ = pipes[1];
    spawn(links[1], pipes[0]);
    close(links[1]), close(pipes[0]);
  }

  // Other threads may fork at any time: nothing but the two descriptors is passed on, under numbers of their own.
  void spawn(int link, int lifeline) {
    constexpr int kFirst = 10;  // above those that dup2 below overwrites
    const int moved[] = {fcntl(link, F_DUPFD_CLOEXEC, kFirst), fcntl(lifeline, F_DUPFD_CLOEXEC, kFirst)};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 2, 1);
    posix_spawn_file_actions_adddup2(&files, moved[0], 3);
    posix_spawn_file_actions_adddup2(&files, moved[1], 4);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    sigset_t none, all;
    sigemptyset(&none), sigfillset(&all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string program = interpreter();
    std::string words[] = {program, "-P", "-c", kCode, packages(), "3", "4"};
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    std::vector<char*> variables;
    for (char** each = environment(); *each != nullptr; ++each)
      if (std::strncmp(*each, "PYTHONHOME=", 11) != 0) variables.push_back(*each);  // of another Python
    variables.push_back(nullptr);
    const int failure = posix_spawnp(&process_, program.c_str(), &files, &how, arguments.data(), variables.data());
    if (failure != 0) process_ = -1, why_ = std::strerror(failure);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    for (int each : moved)
      if (each >= 0) close(each);
  }

  // Returns how the process ended.
  std::string end() {
    const pid_t process = process_;
    forget();  // which ends it
    if (process < 0) return "cannot be started (" + why_ + ")";
    int status = 0;
    pid_t found;
    while ((found = waitpid(process, &status, 0)) < 0 && errno == EINTR) {
    }
    if (found < 0) return "ended";  // the host waits for all children itself
    if (WIFSIGNALED(status)) return std::string("was ended by the signal ") + strsignal(WTERMSIG(status));
    return "ended with the code " + std::to_string(WEXITSTATUS(status));
  }

  void write_all(const char* data, std::size_t size) {
    while (size != 0) {
      const ssize_t sent = send_quietly(link_, data, size);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) throw Lost("while it was asked");
      data += sent, size -= static_cast<std::size_t>(sent);
    }
  }

  void read_all(void* into, std::size_t size) {
    auto* data = static_cast<char*>(into);
    while (size != 0) {
      const ssize_t got = recv(link_, data, size, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw Lost("before it answered");
      data += got, size -= static_cast<std::size_t>(got);
    }
  }

  void send(const char* what, const std::vector<std::string_view>& parts, std::size_t number) {
    std::string values = std::string("{\"what\": \"") + what + "\", \"number\": " + std::to_string(number) + ", \"sizes\": [";
    Head head{};
    std::memcpy(head.kind, kKind, sizeof kKind);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      values += (i == 0 ? "" : ", ") + std::to_string(parts[i].size());
      head.data += parts[i].size();
    }
    values += "]}";
    head.values = values.size();
    write_all(reinterpret_cast<const char*>(&head), sizeof head);
    write_all(values.data(), values.size());
    for (std::string_view part : parts) write_all(part.data(), part.size());
  }

  PJRT_Error* receive(Answer& answer) {
    Head head;
    read_all(&head, sizeof head);
    std::string values(head.values, '\0');
    read_all(values.data(), values.size());
    answer.values = Json::parse(values);
    answer.data = Storage::of_pool(head.data);
    if (answer.data == nullptr) {
      end();  // what it says is left unread
      return error(kResourceExhausted, std::to_string(head.data) + " bytes for a compiled program");
    }
    read_all(answer.data->data, head.data);
    const Json* code = answer.values.find("code");
    return code == nullptr ? nullptr : error(static_cast<Code>(code->integer()), answer.values["message"].text());
  }

  std::mutex mutex_;
  int link_ = -1, lifeline_ = -1;
  pid_t process_ = -1, owner_ = getpid();
  std::string why_;
};

}  // namespace

PJRT_Error* ask_worker(const char* what, const std::vector<std::string_view>& parts, std::size_t number, Answer& answer) {
  static Worker* worker = new Worker;  // leaked on purpose: programs may be compiled while the process ends
  try {
    return worker->ask(what, parts, number, answer);
  } catch (const std::exception& failure) {
    return error(kInternal, failure.what());
  }
}

}  // namespace stablexla::pjrt
