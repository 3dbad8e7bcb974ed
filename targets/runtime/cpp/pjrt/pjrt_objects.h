// What the PJRT table hands out: errors, events, devices and their memories, arrays, programs. None of it needs Python.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_program.h"
#include "memory_pool.h"
#include "pjrt_abi.h"
#include "profile.h"

namespace stablexla::pjrt {

constexpr int kMostDevices = 1024;

// Of PJRT_Error_Code, which are absl's.
enum Code : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13
};

struct PJRT_Error {
  int code;
  std::string message;
  bool is_raised = false;  // an exception comes as soon as the call is over: for the caller it went well
};

// A program that cannot run here: an error's code, and why.
struct Refused : std::runtime_error {
  Refused(Code code, const std::string& what) : std::runtime_error(what), code(code) {}
  Code code;
};

inline PJRT_Error* error(Code code, std::string message) { return new PJRT_Error{code, std::move(message)}; }

// Runs a wait, without the GIL where this thread has it: what is waited for may need it, as numpy's arrays do that a run
// was the last to read. Set where there is a Python.
extern void (*wait_without_gil)(const std::function<void()>& wait);

// Runs Python's handlers of signals, on its main thread. True when one raised: the exception comes when the call of the
// table is over, since an error of the table is another exception. Set where there is a Python.
extern bool (*interrupted)();
PJRT_Error* stopped(const std::string& name, bool is_raised);

// Waits until `is_done`, with the lock; false when the wait was interrupted.
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);

// Something that is done, or failed, once.
class Outcome {
 public:
  void set(std::unique_ptr<PJRT_Error> failure = nullptr);
  bool is_set() const { return done_.load(std::memory_order_acquire); }
  bool is_good() const { return is_set() && failure_ == nullptr; }
  bool wait();  // false when a signal ended the wait; what was waited for is stopped then
  PJRT_Error* failure() const;  // a copy for the caller, or null; once it is set
  // Calls back when it is set, at once if it is.
  void when_set(PJRT_Event_OnReadyCallback callback, void* argument);

 private:
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<PJRT_Error> failure_;
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting_;
};

struct PJRT_Event {
  std::shared_ptr<Outcome> outcome;
};

PJRT_Event* done_event();  // of something that is done already

// Those of a device, the default one first; all of them are the host's memory, and a program reads any of them.
constexpr const char* kMemoryKinds[] = {"device", "pinned_host", "unpinned_host"};
std::size_t kind_of(const std::string& name);  // its number; throws std::invalid_argument for another

struct PJRT_Memory {
  int id, kind_id;
  std::string kind, text;
  PJRT_Device* device;
};

struct PJRT_DeviceDescription {
  int id, process;
  std::string text;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
  PJRT_Client* client;
  std::vector<PJRT_Memory*> memories;  // by kMemoryKinds; none of another process's
  int local_id;                        // in its process
};

struct PJRT_TopologyDescription {
  PJRT_Client* client;
  std::vector<PJRT_DeviceDescription*> descriptions;
  bool is_owner = false;  // of a client that stands for devices elsewhere
  std::string name;
};

// The memory of an array: a block of the pool, or somebody else's, who is told when it is free.
class Storage {
 public:
  static std::shared_ptr<Storage> of_pool(std::size_t bytes);  // null where there is no memory
  static std::shared_ptr<Storage> of_block(Block block, std::size_t bytes);
  static std::shared_ptr<Storage> borrowed(void* data, std::size_t bytes, std::function<void()> release);
  Storage(Block block, void* data, std::size_t bytes, std::function<void()> release)
      : data(data), bytes(bytes), block_(block), release_(std::move(release)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  bool is_ours() const { return release_ == nullptr; }

  void* const data;
  const std::size_t bytes;
  std::atomic<int> queued{0};  // uses of runs in the queue

 private:
  Block block_;
  std::function<void()> release_;  // of somebody else's
};

// Dimensions from minor to major, which order an array's elements in memory; none for the order of rows.
using Order = std::vector<std::int64_t>;
Order full(const Order& order, std::size_t rank);  // with all dimensions
std::string text_of(const Order& order);              // as XLA writes it
// The shape of an array from that of its memory.
std::vector<std::int64_t> logical(const std::vector<std::int64_t>& memory, const Order& order);

struct PJRT_Layouts_MemoryLayout {
  std::string text;
  PJRT_Layouts_MemoryLayout(const Order& order, std::size_t rank) : text(text_of(full(order, rank))) {}
};

struct PJRT_Buffer {
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims;
  const Order order;
  PJRT_Memory* memory;
  const std::shared_ptr<Outcome> made;  // of the run that writes it; null where that is done

  PJRT_Buffer(PJRT_Buffer_Type type, std::vector<std::int64_t> dims, PJRT_Memory* memory,
              std::shared_ptr<Storage> storage, Order order = {}, std::shared_ptr<Outcome> made = nullptr)
      : type(type),
        dims(std::move(dims)),
        order(std::move(order)),
        memory(memory),
        made(std::move(made)),
        storage_(std::move(storage)) {}
  std::shared_ptr<Storage> storage() const;  // null once it is deleted
  std::shared_ptr<Storage> take();           // deletes it
  bool is_made() const { return made == nullptr || made->is_set(); }
  PJRT_Error* wait() const;  // until it is made; why it is not, or null
  // Others that read the memory, as numpy's arrays do: it stays when the array is deleted, and is not donated.
  bool hold();     // false once it is deleted
  bool release();  // false where nobody holds it
  bool is_held() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Storage> storage_, held_;
  int holders_ = 0;
};

std::size_t element_bytes(PJRT_Buffer_Type type);  // 0 for what is no array's
PJRT_Error* no_memory(std::size_t bytes);           // for an array
bool is_of_rows(const PJRT_Buffer_MemoryLayout* layout);  // of null, too
// Finds the bytes of an array in the order of rows. Returns an error, or null.
PJRT_Error* measure(PJRT_Buffer_Type type, const std::vector<std::int64_t>& dims, std::size_t& bytes);

constexpr int kToken = 23;

// A result: an array of the program's, or a token, which orders effects and has no elements.
struct Output {
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims;
  std::size_t bytes;
  int alias;  // the array argument whose memory it may take, or -1
  std::size_t kind;  // of kMemoryKinds
  Order order;
  bool is_token() const { return type == kToken; }
};

struct Parameter {
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims;
  Order order = {};
};
std::string text_of(const Parameter& array);  // f32[2,3]
extern const char* const kTypeNames[];        // XLA's, by the numbers of element types
extern const std::size_t kTypeCount;

using Memories = std::vector<std::vector<std::shared_ptr<Storage>>>;  // of arrays, by device

// Texts and, as the table gives them, where each begins and its length.
struct Texts {
  explicit Texts(std::vector<std::string> given = {}) : texts(std::move(given)) {
    for (const std::string& each : texts) data.push_back(each.data()), sizes.push_back(each.size());
  }
  Texts(Texts&&) = default;
  Texts& operator=(Texts&&) = default;

  std::vector<std::string> texts;
  std::vector<const char*> data;
  std::vector<std::size_t> sizes;
};

// A call in a program that a trace names: of a kernel as a whole, or the share of it that a thread takes.
struct TracedCall {
  std::string kernel;
  bool is_share;
  std::string phase, operation, line;  // of the kernel; of the user's program; or ""
};

// What a trace says of a program, for as long as the trace is kept.
struct TracedProgram {
  std::string name;
  std::vector<int> devices;        // their ids
  std::vector<TracedCall> calls;  // by their numbers
  std::string missing;             // why no calls are known, or ""
};

// A program for one or several devices.
struct PJRT_Executable {
  virtual ~PJRT_Executable() = default;
  // Has runs pass marks from `first` on while there is a trace. Returns an error, or null.
  virtual PJRT_Error* mark_calls(std::int64_t, std::vector<TracedCall>&) {
    return error(kUnimplemented, "programs that run without Python have no marks");
  }
  virtual bool needs_python() const = 0;
  // Returns an error, or null.
  virtual PJRT_Error* run(const Memories& arguments, const Memories& results) = 0;
  // These need Python.
  virtual PJRT_Error* save(std::string& bytes) = 0;
  virtual PJRT_Error* partition(std::string& text) = 0;  // gives the program of one device, of a sharded one
  virtual PJRT_Error* count_costs(std::vector<std::pair<std::string, float>>& found) = 0;

  std::string name, text, fingerprint, assignment;
  int num_replicas = 1, num_partitions = 1;
  std::size_t num_arguments = 0;  // tokens among them
  std::vector<int> takes;         // those that are arrays
  std::vector<Parameter> parameters;  // what these are
  std::vector<PJRT_Layouts_MemoryLayout> argument_layouts, output_layouts;
  std::vector<int> donated;       // of the arrays, by their number among them, those that are gone after a call
  std::vector<Output> outputs;
  std::vector<PJRT_Device*> devices;  // those of this process, in the order of the program's
  std::vector<PJRT_LogicalDeviceIds> logical_ids;
  std::atomic<std::int64_t> nanoseconds{-1};  // of the last run
  std::int64_t code_bytes = 0, argument_bytes = 0, output_bytes = 0, alias_bytes = 0, arena_bytes = 0;
  Texts parameter_shardings, output_shardings;  // OpSharding protos; none for one partition

  // As the table gives them: parallel arrays.
  std::vector<PJRT_Buffer_Type> output_types;
  std::vector<std::int64_t> output_dims;
  std::vector<std::size_t> output_ranks;
  Texts kinds;
  std::vector<PJRT_Layouts_MemoryLayout*> argument_layout_list, output_layout_list;
  void lay_out();  // fills these

  // What one call costs, once it was asked for.
  std::atomic<bool> has_costs{false};
  std::mutex asking;
  std::vector<std::pair<std::string, float>> costs;
  std::vector<PJRT_NamedValue> named_costs;  // their names are those of `costs`

  // The first of its marks in traces, and what these say of it, once it was called during one.
  std::atomic<std::int64_t> first_mark{0};
  std::shared_ptr<TracedProgram> traced;
  std::recursive_mutex marking;  // a signal's handler may call the program that is being marked
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<PJRT_Executable> program;
  std::atomic<bool> is_deleted{false};
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

// jaxlib's executables own what GetExecutable gives them.
struct SharedExecutable {
  std::shared_ptr<PJRT_Executable> program;
};

struct PJRT_Client {
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<std::unique_ptr<PJRT_Memory>> memories;
  std::vector<PJRT_Device*> device_list, local_list;  // of all processes, and of this one
  std::vector<PJRT_Memory*> memory_list;
  PJRT_TopologyDescription topology;
  const int process;
  PJRT_Client(int count, int process, int processes);  // with `count` devices in each process
};

// Compiles, with Python. Returns an error, or sets `made`.
using Compile = std::function<PJRT_Error*(PJRT_Client&, const PJRT_Program&, const std::string& options,
                                          std::shared_ptr<PJRT_Executable>& made)>;
// Makes a program of what `save` wrote, for other compile options if there are any.
using Load = std::function<PJRT_Error*(PJRT_Client&, const std::string& bytes, const std::string& options,
                                       std::shared_ptr<PJRT_Executable>& made)>;
// Tells versions of the compiler and kinds of machines apart.
using Fingerprint = std::function<PJRT_Error*(const PJRT_Client&, std::uint64_t& found)>;
struct Host {
  bool is_asynchronous = true;
  Compile compile;
  Fingerprint fingerprint;
  Load load;
  int num_devices = 1, process = 0, processes = 1;  // devices in each process
  std::string wrong;    // what is wrong with the environment: no client is made then
  std::string version;  // of stablexla
  std::vector<std::int64_t> current_version, minimum_version;  // of StableHLO
  // Finds these two where they are not known yet; nothing where there is no compiler.
  std::function<void(Host&)> find_versions = [](Host&) {};
  // Of the extension for XLA's foreign function interface, which is there where these are.
  std::function<PJRT_Error*(PJRT_FFI_Register_Handler_Args&)> add_handler;
  std::function<void(PJRT_FFI_Type_Register_Args&)> add_type;
};

const PJRT_Api* make_table(Host host);

// Arrays, in pjrt_buffers.cpp.
PJRT_Error* buffer_of_host(PJRT_Client_BufferFromHostBuffer_Args& args);
PJRT_Error* buffer_of_view(PJRT_Client_CreateViewOfDeviceBuffer_Args& args);
PJRT_Error* copy_to_host(PJRT_Buffer_ToHostBuffer_Args& args);
PJRT_Error* copy_to(const PJRT_Buffer& from, PJRT_Memory* memory, PJRT_Buffer** to);
// Arrays that are filled in parts, in pjrt_transfers.cpp.
PJRT_Error* transfer_create(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args);
void transfer_destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args);
PJRT_Error* transfer_data(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args);
PJRT_Error* transfer_literal(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args& args);
PJRT_Error* transfer_retrieve(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args);
void transfer_device(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args);
void transfer_count(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args);
PJRT_Error* transfer_size(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args);
PJRT_Error* transfer_fail(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args);
PJRT_Error* buffer_of_nothing(PJRT_Client_CreateUninitializedBuffer_Args& args);
PJRT_Error* buffer_of_error(PJRT_Client_CreateErrorBuffer_Args& args);
PJRT_Error* copy_part_to_host(PJRT_Buffer_CopyRawToHost_Args& args);
// Runs, in pjrt_execute.cpp; one that does not wait for them only starts those that take long.
PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args& args, bool waits);
// Runs a program without Python: on this thread, or on all of its `devices`, which is null where it is for one.
PJRT_Error* run_code(const PlainCode& code, const DeviceProgram* devices, const Memories& arguments,
                     const Memories& results, RunControl& control);

// Traces, in pjrt_profiler.cpp. Has a program ready for the one that is on; returns the error of a signal, or null.
PJRT_Error* prepare_trace(PJRT_Executable& program);
PJRT_Extension_Base* profiler_extension();

// A run of a program, or the making of one that a trace can look into, as a span.
class TracedSpan {
 public:
  explicit TracedSpan(std::int64_t first_mark, bool is_run = true);
  ~TracedSpan() {
    if (number_ != 0) stablexla_mark(number_ + 1);
  }
  TracedSpan(const TracedSpan&) = delete;

 private:
  std::int64_t number_;  // 0 where there is no trace
};

}  // namespace stablexla::pjrt
