// The profiler extension: the calls of a trace as an XSpace, the protocol buffer that jaxlib puts into its own.
#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

struct PLUGIN_Profiler {
  bool is_on;         // for the options that it was made with
  std::string space;  // once it was asked for
};
struct PLUGIN_Profiler_Error {
  std::string message;
};

namespace {

// Of a program's marks: numbers of two spans that are no calls.
constexpr std::int64_t kRun = kFirstTraced - 2, kMarking = kFirstTraced - 4;
constexpr std::int64_t kPicoseconds = 1000;  // in a nanosecond

struct Programs {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<TracedProgram>> all;  // by their first marks
  std::int64_t next = kFirstTraced;
};

Programs& programs() {
  static auto* the_programs = new Programs;  // leaked on purpose: programs may be called while the process ends
  return *the_programs;
}

class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& text(int field, std::string_view data) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(data.size());
    bytes.append(data);
    return *this;
  }
  Message& message(int field, const Message& other) { return text(field, other.bytes); }

  std::string bytes;

 private:
  void varint(std::uint64_t value) {
    for (; value > 0x7F; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
    bytes += static_cast<char>(value);
  }
};

// Names of a plane's events, or of its events' stats, each written once.
class Names {
 public:
  std::uint64_t operator()(const std::string& name) { return ids_.emplace(name, ids_.size() + 1).first->second; }
  void write(Message& plane, int field) const {
    for (const auto& [name, id] : ids_)
      plane.message(field, Message().number(1, id).message(2, Message().number(1, id).text(2, name)));
  }

 private:
  std::map<std::string, std::uint64_t> ids_;
};

// The plane of this process's threads: jaxlib merges it with its own plane of that name, and lines of equal threads.
class Plane {
 public:
  explicit Plane(const Programs& programs) : programs_(programs) { plane_.text(2, "/host:CPU"); }

  void add(const TracedThread& thread, std::int64_t begin) {
    Message line = new_line(thread.id, thread.name + "/" + std::to_string(thread.id), begin);
    std::vector<TracedMark> open;
    for (const TracedMark& mark : thread.marks) {
      if (mark.number % 2 == 0) {
        open.push_back(mark);
        continue;
      }
      const auto found = std::find_if(open.rbegin(), open.rend(), [&](auto& each) { return each.number == mark.number - 1; });
      if (found == open.rend()) continue;  // it began before the trace did
      write(line, *found, mark.time, begin);
      open.erase(std::prev(found.base()), open.end());  // those behind it were left by an error
    }
    plane_.message(3, line);
  }

  void add_dropped(std::size_t count, std::int64_t begin, std::int64_t end) {
    const std::string name = std::to_string(count) + " more kernels than stablexla keeps of a trace";
    plane_.message(3, new_line(0, "stablexla", begin)
                          .message(4, Message().number(1, events_(name)).number(2, (end - begin) * kPicoseconds)));
  }

  Message finished() {
    events_.write(plane_, 4);
    stats_.write(plane_, 5);
    return std::move(plane_);
  }

 private:
  struct Event {
    std::uint64_t id;
    std::string stats;
  };

  static Message new_line(std::uint64_t id, const std::string& name, std::int64_t begin) {
    return Message().number(1, id).text(2, name).number(3, static_cast<std::uint64_t>(begin));
  }

  void write(Message& line, const TracedMark& from, std::int64_t end, std::int64_t begin) {
    const std::int64_t first = from.number - from.number % kFirstTraced;
    const TracedProgram& program = *programs_.all.at(first);
    auto known = known_.find(from.number);
    if (known == known_.end()) known = known_.emplace(from.number, event_of(program, from.number - first, first / kFirstTraced)).first;
    const auto device = static_cast<std::size_t>(from.device);
    Message event;  // the clock may have been set back
    event.number(1, known->second.id)
        .number(2, static_cast<std::uint64_t>(std::max<std::int64_t>(from.time - begin, 0) * kPicoseconds))
        .number(3, static_cast<std::uint64_t>(std::max<std::int64_t>(end - from.time, 0) * kPicoseconds));
    event.bytes += known->second.stats;
    if (device < program.devices.size())
      event.message(4, Message().number(1, stats_("device_ordinal")).number(4, static_cast<std::uint64_t>(program.devices[device])));
    line.message(4, event);
  }

  Event event_of(const TracedProgram& program, std::int64_t number, std::int64_t id) {
    Message stats;
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) stats.message(4, Message().number(1, stats_(name)).number(7, stats_(value)));
    };
    add("hlo_module", program.name);
    stats.message(4, Message().number(1, stats_("program_id")).number(4, static_cast<std::uint64_t>(id)));
    if (number == kMarking) return {events_("compile " + program.name + " for the trace"), stats.bytes};
    if (number == kRun) {
      add("without kernels", program.missing);
      return {events_(program.name), stats.bytes};
    }
    const TracedCall& call = program.calls.at(static_cast<std::size_t>(number / 2));
    if (!call.is_share) add("hlo_op", call.kernel);
    add("phase", call.phase);
    add("tf_op", call.operation);
    add("source", call.line);
    return {events_(call.is_share ? call.kernel + " (share)" : call.kernel), stats.bytes};
  }

  const Programs& programs_;
  Names events_, stats_;
  std::map<std::int64_t, Event> known_;  // by their marks
  Message plane_;
};

std::string space_of(const Trace& trace) {
  Programs& known = programs();
  std::lock_guard<std::mutex> lock(known.mutex);
  if (trace.threads.empty()) return "";
  Plane plane(known);
  for (const TracedThread& thread : trace.threads) plane.add(thread, trace.begin);
  if (trace.dropped != 0) plane.add_dropped(trace.dropped, trace.begin, trace.end);
  for (auto each = known.all.begin(); each != known.all.end();)  // no later trace has those that are gone
    each = each->second.use_count() == 1 ? known.all.erase(each) : std::next(each);
  return Message().message(1, plane.finished()).bytes;
}

// ---- the profiler's table

void error_destroy(PLUGIN_Profiler_Error_Destroy_Args* args) { delete args->error; }

void error_message(PLUGIN_Profiler_Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

PLUGIN_Profiler_Error* error_code(PLUGIN_Profiler_Error_GetCode_Args* args) {
  args->code = kInternal;
  return nullptr;
}

// Whether options, a ProfileOptions proto, ask for the host's spans and the device's: each has a level, which is there
// unless it is 0.
bool asks_for_kernels(std::string_view options) {
  constexpr char kHostLevel = 2 << 3, kDeviceLevel = 3 << 3;
  std::size_t levels = 0, at = 0;
  while (at + 1 < options.size() && (options[at] & 7) == 0) {
    levels += options[at] == kHostLevel || options[at] == kDeviceLevel ? 1 : 0;
    while (++at < options.size() && (options[at] & 0x80) != 0) {
    }
    ++at;
  }
  return options.empty() || levels == 2;
}

PLUGIN_Profiler_Error* create(PLUGIN_Profiler_Create_Args* args) {
  args->profiler = new PLUGIN_Profiler{asks_for_kernels({args->options, args->options_size}), ""};
  return nullptr;
}

PLUGIN_Profiler_Error* destroy(PLUGIN_Profiler_Destroy_Args* args) {
  delete args->profiler;
  return nullptr;
}

PLUGIN_Profiler_Error* start(PLUGIN_Profiler_Start_Args* args) {
  args->profiler->space.clear();
  if (args->profiler->is_on) begin_trace();
  return nullptr;
}

PLUGIN_Profiler_Error* stop(PLUGIN_Profiler_Stop_Args* args) {
  if (args->profiler->is_on) end_trace();
  return nullptr;
}

// A caller asks for the size first, and copies the bytes from there, or asks again with a place for them.
PLUGIN_Profiler_Error* collect(PLUGIN_Profiler_CollectData_Args* args) {
  std::string& space = args->profiler->space;
  try {
    if (args->profiler->is_on && space.empty()) space = space_of(take_trace());
  } catch (const std::exception& failure) {
    return new PLUGIN_Profiler_Error{failure.what()};
  }
  if (args->buffer != nullptr) std::memcpy(args->buffer, space.data(), space.size());
  if (args->buffer == nullptr) args->buffer = reinterpret_cast<std::uint8_t*>(space.data());
  args->buffer_size_in_bytes = space.size();
  return nullptr;
}

}  // namespace

PJRT_Extension_Base* profiler_extension() {
  static PLUGIN_Profiler_Api api{sizeof api, nullptr, error_destroy, error_message, error_code, create,
                                 destroy,    start,   stop,          collect};
  static PJRT_Profiler_Extension extension{{sizeof extension, kProfiler, nullptr}, &api, 0};
  return &extension.base;
}

TracedSpan::TracedSpan(std::int64_t first_mark, bool is_run)
    : number_(first_mark != 0 && tracing.load(std::memory_order_relaxed) ? first_mark + (is_run ? kRun : kMarking) : 0) {
  if (number_ != 0) stablexla_mark(number_);
}

PJRT_Error* prepare_trace(PJRT_Executable& program) {
  if (program.first_mark.load(std::memory_order_acquire) != 0) return nullptr;
  std::unique_lock<std::recursive_mutex> lock(program.marking, std::try_to_lock);
  if (!lock.owns_lock()) wait_without_gil([&] { lock.lock(); });
  if (program.first_mark.load(std::memory_order_relaxed) != 0) return nullptr;
  const auto made = std::make_shared<TracedProgram>();
  made->name = program.name;
  for (const PJRT_Device* device : program.devices) made->devices.push_back(device->description.id);
  Programs& known = programs();
  std::unique_lock<std::mutex> its_lock(known.mutex);
  const std::int64_t first = std::exchange(known.next, known.next + kFirstTraced);
  known.all[first] = made;
  its_lock.unlock();
  std::vector<TracedCall> calls;
  std::unique_ptr<PJRT_Error> failure;
  {
    const TracedSpan marking(first, false);
    failure.reset(program.mark_calls(first, calls));
  }
  if (failure != nullptr && failure->is_raised) return failure.release();
  if (program.first_mark.load(std::memory_order_relaxed) != 0) return nullptr;  // of a signal's handler
  its_lock.lock();
  made->calls = std::move(calls);
  if (failure != nullptr) made->missing = failure->message;
  its_lock.unlock();
  program.traced = made;
  program.first_mark.store(first, std::memory_order_release);
  return nullptr;
}

}  // namespace stablexla::pjrt
