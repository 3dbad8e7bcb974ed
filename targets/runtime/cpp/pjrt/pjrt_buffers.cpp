// Arrays of the PJRT table: events of their memory, arrays of the host's memory and back.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

#include "pjrt_objects.h"
#include "pjrt_queue.h"
#include "run_limits.h"

namespace stablexla::pjrt {

void Outcome::set(std::unique_ptr<PJRT_Error> failure) {
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    failure_ = std::move(failure);
    done_.store(true, std::memory_order_release);
    waiting.swap(waiting_);
  }
  changed_.notify_all();
  for (auto [callback, argument] : waiting) callback(this->failure(), argument);
}

void (*wait_without_gil)(const std::function<void()>& wait) = [](const std::function<void()>& wait) { wait(); };

bool (*interrupted)() = [] { return false; };

PJRT_Error* stopped(const std::string& name, bool is_raised) {
  return new PJRT_Error{kCancelled, name + ": stopped by Ctrl-C, or another signal whose handler raised", is_raised};
}

bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done) {
  const SignalledRun signalled;
  while (!changed.wait_for(lock, std::chrono::milliseconds(50), is_done)) {
    lock.unlock();
    const bool is_over = SignalledRun::is_due() && interrupted();
    lock.lock();
    if (is_over) return false;
  }
  return true;
}

bool Outcome::wait() {
  bool is_over = is_set();
  if (is_over) return true;
  wait_without_gil([&] {
    std::unique_lock<std::mutex> lock(mutex_);
    is_over = wait_for(changed_, lock, [this] { return is_set(); });
  });
  if (!is_over) stop_queue();
  return is_over;
}

PJRT_Error* Outcome::failure() const { return is_set() && failure_ != nullptr ? new PJRT_Error(*failure_) : nullptr; }

void Outcome::when_set(PJRT_Event_OnReadyCallback callback, void* argument) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_set()) {
      waiting_.emplace_back(callback, argument);
      return;
    }
  }
  callback(failure(), argument);
}

PJRT_Event* done_event() {
  static const std::shared_ptr<Outcome> done = [] {
    auto made = std::make_shared<Outcome>();
    made->set();
    return made;
  }();
  return new PJRT_Event{done};
}

std::shared_ptr<Storage> Storage::of_pool(std::size_t bytes) {
  Block block = acquire_block(bytes);
  return block.data == nullptr ? nullptr : of_block(block, bytes);
}

std::shared_ptr<Storage> Storage::of_block(Block block, std::size_t bytes) {
  return std::make_shared<Storage>(block, block.data, bytes, nullptr);
}

std::shared_ptr<Storage> Storage::borrowed(void* data, std::size_t bytes, std::function<void()> release) {
  return std::make_shared<Storage>(Block{}, data, bytes, std::move(release));
}

Storage::~Storage() {
  if (release_ != nullptr)
    release_();
  else
    release_block(block_);
}

std::shared_ptr<Storage> PJRT_Buffer::storage() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return storage_;
}

bool PJRT_Buffer::hold() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (storage_ == nullptr) return false;
  held_ = storage_;
  ++holders_;
  return true;
}

bool PJRT_Buffer::release() {
  std::shared_ptr<Storage> last;  // dropped without the lock
  std::lock_guard<std::mutex> lock(mutex_);
  if (holders_ == 0) return false;
  if (--holders_ == 0) last = std::move(held_);
  return true;
}

bool PJRT_Buffer::is_held() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return holders_ != 0;
}

PJRT_Error* PJRT_Buffer::wait() const {
  if (made == nullptr) return nullptr;
  return made->wait() ? made->failure() : nullptr;  // after a signal, the exception comes in place of what is returned
}

std::shared_ptr<Storage> PJRT_Buffer::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::move(storage_);
}

const char* const kTypeNames[] = {
    "invalid", "pred", "s8",     "s16",      "s32",           "s64",       "u8",         "u16", "u32", "u64",    "f16",    "f32",
    "f64",     "bf16", "c64",    "c128",     "f8e5m2",        "f8e4m3fn",  "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s4", "u4", "token",
    "s2",      "u2",   "f8e4m3", "f8e3m4",   "f8e8m0fnu",     "f4e2m1fn",  "s1",         "u1",  "f6e2m3fn", "f6e3m2fn"};
const std::size_t kTypeCount = std::size(kTypeNames);

std::string text_of(const Parameter& array) {
  std::string text = static_cast<std::size_t>(array.type) < kTypeCount ? kTypeNames[array.type] : "unknown";
  for (std::size_t i = 0; i < array.dims.size(); ++i) text += (i == 0 ? "[" : ",") + std::to_string(array.dims[i]);
  return text + (array.dims.empty() ? "[]" : "]");
}

std::size_t element_bytes(PJRT_Buffer_Type type) {
  // By the numbers of element types: invalid, pred, s8 to s64, u8 to u64, f16, f32, f64, bf16, c64, c128, five of 8 bits,
  // s4, u4, token, s2, u2, four of 8 bits and fewer, s1, u1, two of 6 bits. Those of less than a byte take one.
  constexpr unsigned char bytes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 1, 1,
                                     1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto number = static_cast<std::size_t>(type);
  return number < sizeof bytes ? bytes[number] : 0;
}

PJRT_Error* measure(PJRT_Buffer_Type type, const std::vector<std::int64_t>& dims, std::size_t& bytes) {
  bytes = element_bytes(type);
  if (bytes == 0) return error(kUnimplemented, "an array of element type " + std::to_string(type));
  for (std::int64_t extent : dims) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes))
      return error(kInvalidArgument, "an extent below 0, or more bytes than an address can count");
  }
  return nullptr;
}

Order full(const Order& order, std::size_t rank) {
  Order made(order);
  for (std::size_t i = made.size(); i < rank; ++i) made.push_back(static_cast<std::int64_t>(rank - 1 - i));
  return made;
}

std::vector<std::int64_t> logical(const std::vector<std::int64_t>& memory, const Order& order) {
  const Order whole = full(order, memory.size());
  std::vector<std::int64_t> dims(memory.size());
  for (std::size_t d = 0; d < dims.size(); ++d) dims.at(static_cast<std::size_t>(whole[d])) = *(memory.rbegin() + d);
  return dims;
}

std::string text_of(const Order& order) {
  std::string text = "{";
  for (std::int64_t each : order) text += (text.size() == 1 ? "" : ",") + std::to_string(each);
  return text + "}";
}

namespace {

constexpr int kDuringCall = 0, kUntilTransfer = 1;  // else the memory stays as it is until it is released

// Copies an array of any strides to dense memory, the last dimension innermost.
void gather(const char* from, char* to, const std::int64_t* dims, const std::int64_t* strides, std::size_t rank,
            std::size_t element) {
  if (rank == 0) {
    std::memcpy(to, from, element);
    return;
  }
  std::size_t inner = element;
  for (std::size_t i = 1; i < rank; ++i) inner *= static_cast<std::size_t>(dims[i]);
  for (std::int64_t i = 0; i < dims[0]; ++i)
    gather(from + i * strides[0], to + static_cast<std::size_t>(i) * inner, dims + 1, strides + 1, rank - 1, element);
}

// An array of somebody else's; no strides are those of rows.
struct Given {
  char* data;
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims, strides;
  std::size_t element = 0, bytes = 0;

  PJRT_Error* measure();
  bool is_dense() const;
  void copy_to(char* memory) const;
  std::shared_ptr<Storage> copy() const;  // null where there is no memory
};

PJRT_Error* Given::measure() {
  element = element_bytes(type);
  if (!strides.empty() && strides.size() != dims.size())
    return error(kInvalidArgument, "as many strides as dimensions, please");
  return pjrt::measure(type, dims, bytes);
}

// Whether programs can read it where it lies.
bool Given::is_dense() const {
  if (bytes == 0 || reinterpret_cast<std::uintptr_t>(data) % element != 0) return false;
  auto wanted = static_cast<std::int64_t>(element);
  for (std::size_t i = strides.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != wanted) return false;
    wanted *= dims[i];
  }
  return true;
}

void Given::copy_to(char* memory) const {
  if (bytes == 0) return;
  if (strides.empty())
    std::memcpy(memory, data, bytes);
  else
    gather(data, memory, dims.data(), strides.data(), dims.size(), element);
}

std::shared_ptr<Storage> Given::copy() const {
  auto storage = Storage::of_pool(bytes);
  if (storage != nullptr) copy_to(static_cast<char*>(storage->data));
  return storage;
}

constexpr int kTiled = 0;

// The strides in bytes of dense arrays.
std::vector<std::int64_t> strides_of(const Order& order, const Given& given) {
  std::vector<std::int64_t> strides(given.dims.size());
  auto next = static_cast<std::int64_t>(given.element);
  for (std::int64_t dimension : full(order, strides.size())) {
    strides.at(static_cast<std::size_t>(dimension)) = next;
    next *= given.dims[static_cast<std::size_t>(dimension)];
  }
  return strides;
}

Order order_of(const PJRT_Buffer_MemoryLayout& layout) {
  return {layout.tiled.minor_to_major, layout.tiled.minor_to_major + layout.tiled.minor_to_major_size};
}

// The strides of a layout in bytes; for none those of rows.
std::vector<std::int64_t> strides_of(const PJRT_Buffer_MemoryLayout* layout, const Given& given) {
  if (layout == nullptr) return {};
  if (layout->type == kTiled) return strides_of(order_of(*layout), given);
  return {layout->strides.byte_strides, layout->strides.byte_strides + layout->strides.num_byte_strides};
}

// Has the dimensions in an order of memory, from minor to major: the array is that of its memory then.
PJRT_Error* arrange(const PJRT_Buffer_MemoryLayout& layout, Given& given) {
  if (layout.type != kTiled || layout.tiled.num_tiles != 0)
    return error(kUnimplemented, "an array in memory by tiles or strides; its layout is an order of dimensions");
  const Order order = order_of(layout);
  Order sorted(order), rows;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < given.dims.size(); ++i) rows.push_back(static_cast<std::int64_t>(i));
  if (sorted != rows) return error(kInvalidArgument, "the layout " + text_of(order) + " of an array of another rank");
  const auto strides = given.strides.empty() ? strides_of(Order(), given) : given.strides;
  Given made{given.data, given.type, {}, {}, given.element, given.bytes};
  for (auto each = order.rbegin(); each != order.rend(); ++each) {
    made.dims.push_back(given.dims[static_cast<std::size_t>(*each)]);
    made.strides.push_back(strides[static_cast<std::size_t>(*each)]);
  }
  given = std::move(made);
  return nullptr;
}

Order shortened(Order order) {
  return std::is_sorted(order.rbegin(), order.rend()) ? Order() : order;
}

}  // namespace

PJRT_Error* no_memory(std::size_t bytes) {
  return error(kResourceExhausted, std::to_string(bytes) + " bytes for an array");
}

bool is_of_rows(const PJRT_Buffer_MemoryLayout* layout) {
  if (layout == nullptr) return true;
  return layout->type == kTiled && layout->tiled.num_tiles == 0 && shortened(order_of(*layout)).empty();
}

PJRT_Error* buffer_of_host(PJRT_Client_BufferFromHostBuffer_Args& args) {
  Given given{static_cast<char*>(const_cast<void*>(args.data)), args.type, {args.dims, args.dims + args.num_dims}, {}};
  if (args.byte_strides != nullptr) given.strides.assign(args.byte_strides, args.byte_strides + args.num_byte_strides);
  if (PJRT_Error* failure = given.measure()) return failure;
  std::vector<std::int64_t> dims(given.dims);
  Order order;
  if (args.device_layout != nullptr) {
    if (PJRT_Error* failure = arrange(*args.device_layout, given)) return failure;
    order = shortened(order_of(*args.device_layout));
  }
  PJRT_Memory* memory = args.memory != nullptr ? args.memory : args.device->memories.front();
  auto released = std::make_shared<Outcome>();
  std::shared_ptr<Storage> storage;
  if (args.host_buffer_semantics > kUntilTransfer && given.is_dense()) {
    storage = Storage::borrowed(given.data, given.bytes, [released] { released->set(); });
  } else {
    storage = given.copy();
    if (storage == nullptr) return no_memory(given.bytes);
    released->set();
  }
  args.buffer = new PJRT_Buffer(args.type, std::move(dims), memory, std::move(storage), std::move(order));
  args.done_with_host_buffer = new PJRT_Event{std::move(released)};
  return nullptr;
}

// Memory of another framework's, by DLPack: it is told when nobody here reads it any more.
PJRT_Error* buffer_of_view(PJRT_Client_CreateViewOfDeviceBuffer_Args& args) {
  Given given{static_cast<char*>(args.device_buffer_ptr), args.element_type, {args.dims, args.dims + args.num_dims}, {}};
  if (PJRT_Error* failure = given.measure()) return failure;
  given.strides = strides_of(args.layout, given);
  if (PJRT_Error* failure = given.measure()) return failure;
  PJRT_Memory* memory = args.memory != nullptr ? args.memory : args.device->memories.front();
  const auto release = [told = args.on_delete_callback, data = args.device_buffer_ptr,
                        argument = args.on_delete_callback_arg] {
    if (told != nullptr) told(data, argument);
  };
  std::shared_ptr<Storage> storage;
  if (given.is_dense()) {
    storage = Storage::borrowed(given.data, given.bytes, release);
  } else {
    storage = given.copy();
    if (storage == nullptr) return no_memory(given.bytes);
    release();
  }
  args.buffer = new PJRT_Buffer(args.element_type, std::move(given.dims), memory, std::move(storage));
  return nullptr;
}

PJRT_Error* copy_to_host(PJRT_Buffer_ToHostBuffer_Args& args) {
  const std::shared_ptr<Storage> storage = args.src->storage();
  if (storage == nullptr) return error(kInvalidArgument, "the array has been deleted or donated");
  if (args.dst == nullptr) {
    args.dst_size = storage->bytes;
    return nullptr;
  }
  if (args.dst_size < storage->bytes) return error(kInvalidArgument, "less memory than the array has bytes");
  if (PJRT_Error* failure = args.src->wait()) return failure;
  if (args.host_layout == nullptr || args.host_layout->type != kTiled ||
      shortened(order_of(*args.host_layout)) == args.src->order) {
    std::memcpy(args.dst, storage->data, storage->bytes);
  } else {
    Given given{static_cast<char*>(storage->data), args.src->type, args.src->dims, {}};
    if (PJRT_Error* failure = given.measure()) return failure;
    given.strides = strides_of(args.src->order, given);
    if (PJRT_Error* failure = arrange(*args.host_layout, given)) return failure;
    given.copy_to(static_cast<char*>(args.dst));
  }
  args.event = done_event();
  return nullptr;
}

PJRT_Error* copy_to(const PJRT_Buffer& from, PJRT_Memory* memory, PJRT_Buffer** to) {
  const std::shared_ptr<Storage> storage = from.storage();
  if (storage == nullptr) return error(kInvalidArgument, "the array has been deleted or donated");
  if (PJRT_Error* failure = from.wait()) return failure;
  auto copy = Storage::of_pool(storage->bytes);
  if (copy == nullptr) return no_memory(storage->bytes);
  std::memcpy(copy->data, storage->data, storage->bytes);
  *to = new PJRT_Buffer(from.type, from.dims, memory, std::move(copy), from.order);
  return nullptr;
}

}  // namespace stablexla::pjrt
