#include "profile.h"

#include <pthread.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "device_number.h"

namespace stablexla {

namespace {

struct Log {
  std::vector<std::int64_t> pairs;
};

std::atomic<bool> active{false};
std::mutex mutex;

// Logs outlive their threads: the profiler reads them later.
std::vector<std::unique_ptr<Log>>& logs() {
  static auto* the_logs = new std::vector<std::unique_ptr<Log>>;
  return *the_logs;
}

Log* log_of_this_thread() {
  thread_local Log* mine = nullptr;
  if (mine == nullptr) {
    std::lock_guard<std::mutex> lock(mutex);
    logs().push_back(std::make_unique<Log>());
    mine = logs().back().get();
  }
  return mine;
}

template <typename Clock>
std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// The marks of a thread in the trace; the lock is free but while the trace begins or is taken.
struct TraceLog {
  std::mutex mutex;
  TracedThread thread;
  int open_dropped = 0;  // spans that are open, and not in the trace
};

struct TraceLogs {
  std::mutex mutex;
  std::vector<std::shared_ptr<TraceLog>> all;
  std::atomic<std::size_t> spans{0};  // with those for which there was no room
  std::int64_t begin = 0, end = 0;
};

// Leaked on purpose: threads pass marks until the process ends. A forked child has other threads, and gets new logs.
std::atomic<TraceLogs*> the_trace_logs{nullptr};

void renew_in_child() {
  tracing = false;
  the_trace_logs.store(new TraceLogs);
}

TraceLogs& trace_logs() {
  static std::once_flag once;
  std::call_once(once, [] {
    the_trace_logs.store(new TraceLogs);
    pthread_atfork(nullptr, nullptr, renew_in_child);
  });
  return *the_trace_logs.load(std::memory_order_acquire);
}

TraceLog& trace_log_of_this_thread(TraceLogs& logs) {
  thread_local std::pair<TraceLogs*, std::shared_ptr<TraceLog>> mine{nullptr, nullptr};
  if (mine.first != &logs) {
    mine = {&logs, std::make_shared<TraceLog>()};
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    mine.second->thread = {std::hash<std::thread::id>{}(std::this_thread::get_id()), name, {}};
    std::lock_guard<std::mutex> lock(logs.mutex);
    logs.all.push_back(mine.second);
  }
  return *mine.second;
}

void mark_in_trace(std::int64_t number) {
  if (!tracing.load(std::memory_order_relaxed)) return;
  const bool begins = number % 2 == 0;
  const std::int64_t reached = begins ? 0 : now<std::chrono::system_clock>();
  TraceLogs& logs = trace_logs();
  TraceLog& log = trace_log_of_this_thread(logs);
  std::lock_guard<std::mutex> lock(log.mutex);
  const bool is_full = begins && logs.spans.fetch_add(1, std::memory_order_relaxed) >= kMostSpans;
  if (is_full || log.open_dropped != 0) {
    log.open_dropped += begins ? 1 : -1;
    return;
  }
  log.thread.marks.push_back({number, reached, device_number});
  if (begins) log.thread.marks.back().time = now<std::chrono::system_clock>();  // without the time to note it
}

}  // namespace

std::atomic<bool> tracing{false};

void begin_trace() {
  TraceLogs& logs = trace_logs();
  tracing = false;
  std::lock_guard<std::mutex> lock(logs.mutex);
  for (auto& log : logs.all) {
    std::lock_guard<std::mutex> its_lock(log->mutex);
    log->thread.marks.clear();
    log->open_dropped = 0;
  }
  logs.spans = 0;
  logs.begin = now<std::chrono::system_clock>();
  tracing = true;
}

void end_trace() {
  TraceLogs& logs = trace_logs();
  std::lock_guard<std::mutex> lock(logs.mutex);
  if (tracing.exchange(false)) logs.end = now<std::chrono::system_clock>();
}

Trace take_trace() {
  TraceLogs& logs = trace_logs();
  std::lock_guard<std::mutex> lock(logs.mutex);
  const std::size_t spans = logs.spans.exchange(0);
  Trace found{logs.begin, logs.end, {}, spans > kMostSpans ? spans - kMostSpans : 0};
  std::vector<std::shared_ptr<TraceLog>> left;
  for (auto& log : logs.all) {
    std::lock_guard<std::mutex> its_lock(log->mutex);
    TracedThread& thread = log->thread;
    if (!thread.marks.empty()) found.threads.push_back({thread.id, thread.name, std::move(thread.marks)});
    thread.marks = {};
    if (log.use_count() > 1) left.push_back(log);  // the others' threads have ended
  }
  logs.all = std::move(left);
  return found;
}

void begin_profile() {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto& log : logs()) log->pairs.clear();
  active = true;
}

std::vector<ThreadMarks> end_profile() {
  active = false;
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<ThreadMarks> found;
  for (std::size_t i = 0; i < logs().size(); ++i) {
    const auto& pairs = logs()[i]->pairs;
    if (!pairs.empty())
      found.push_back({static_cast<int>(i), std::string(reinterpret_cast<const char*>(pairs.data()),
                                                        pairs.size() * sizeof(std::int64_t))});
    logs()[i]->pairs.clear();
  }
  return found;
}

}  // namespace stablexla

extern "C" void stablexla_mark(std::int64_t number) {
  if (number >= stablexla::kFirstTraced) return stablexla::mark_in_trace(number);
  if (!stablexla::active.load(std::memory_order_relaxed)) return;
  const std::int64_t reached = stablexla::now<std::chrono::steady_clock>();
  auto& pairs = stablexla::log_of_this_thread()->pairs;
  pairs.push_back(number);
  pairs.push_back(reached);
}
