// ABI of XLA's typed foreign function interface (FFI), as far as a caller needs it: layout of handlers' arguments.
// Names and order of the fields are those of version 0.5 of xla/ffi/api/c_api.h; a test compares the two. A minor version
// only appends: a handler of an older one reads the first fields alone, and says by struct_size how many it passes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stablexla::ffi {

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  std::size_t struct_size = sizeof(Version);
  Extension* extension_start = nullptr;
  int major_version = 0, minor_version = 5;
};

struct Error;    // ours to define
struct Context;  // ours to define
struct Future;   // ours to define

enum class Stage { instantiate = 0, prepare = 1, initialize = 2, execute = 3 };  // 4, record, is of GPUs

struct Buffer {
  std::size_t struct_size = sizeof(Buffer);
  Extension* extension_start = nullptr;
  int dtype = 0;
  void* data = nullptr;
  std::int64_t rank = 0;
  std::int64_t* dims = nullptr;
};

struct ByteSpan {
  const char* ptr;
  std::size_t len;
};

struct Scalar {
  int dtype;
  void* value;
};

struct Array {
  int dtype;
  std::size_t size;
  void* data;
};

// The arguments, or the results.
struct Buffers {
  std::size_t struct_size = sizeof(Buffers);
  Extension* extension_start = nullptr;
  std::int64_t size = 0;
  int* types = nullptr;
  void** values = nullptr;
};

constexpr int kBuffer = 1;

enum AttributeKind : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct Attributes {
  std::size_t struct_size = sizeof(Attributes);
  Extension* extension_start = nullptr;
  std::int64_t size = 0;
  int* types = nullptr;
  ByteSpan** names = nullptr;
  void** values = nullptr;
};

struct Api;

struct CallFrame {
  std::size_t struct_size;  // up to the future, a later addition
  Extension* extension_start = nullptr;
  const Api* api = nullptr;
  Context* context = nullptr;
  Stage stage = Stage::execute;
  Buffers arguments, results;
  Attributes attributes;
  Future* future = nullptr;
};

using Handler = Error*(CallFrame*);


struct TypeId {
  std::int64_t type_id;
};

struct ErrorCreate {
  std::size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;
};
struct ErrorGetDetails {
  std::size_t struct_size;
  Extension* extension_start;
  Error* error;
  const char* message;
  int code;  // not in 0.3
};
struct ErrorDestroy {
  std::size_t struct_size;
  Extension* extension_start;
  Error* error;
};
struct TypeInfo {
  std::size_t struct_size;
  Extension* extension_start;
  void (*deleter)(void*);
};
struct TypeRegister {
  std::size_t struct_size;
  Extension* extension_start;
  ByteSpan name;
  TypeId* type_id;
  const TypeInfo* type_info;
};
struct ContextGet {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  TypeId* type_id;
  void* data;
};
struct StateAccess {  // to set or get it
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  Stage stage;
  TypeId* type_id;
  void* state;
};
struct StreamGet {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  void* stream;
};
struct MemoryAllocate {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::size_t size, alignment;
  void* data;
};
struct MemoryFree {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::size_t size;
  void* data;
};
struct ThreadPoolSchedule {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  void (*task)(void*);
  void* data;
};
struct ThreadPoolNumThreads {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::int64_t* num_threads;
};
struct FutureCreate {
  std::size_t struct_size;
  Extension* extension_start;
  Future* future;
};
struct FutureSetError {  // without the error where a future is only set
  std::size_t struct_size;
  Extension* extension_start;
  Future* future;
  Error* error;
};
struct RunIdGet {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::int64_t run_id;
};
struct DeviceOrdinalGet {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::int32_t device_ordinal;
};

struct FindExtension {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  std::int64_t extension_type;
  const void* extension;
};
struct OptionsGet {
  std::size_t struct_size;
  Extension* extension_start;
  Context* context;
  const Attributes* attributes;
};

// The functions that a handler may call.
struct Api {
  std::size_t struct_size = sizeof(Api);
  Extension* extension_start = nullptr;
  Version version;
  const void* internal_api = nullptr;
  Error* (*error_create)(ErrorCreate*);
  void (*error_get_details)(ErrorGetDetails*);
  void (*error_destroy)(ErrorDestroy*);
  Error* (*handler_register)(void*);
  Error* (*stream_get)(StreamGet*);
  Error* (*type_register)(TypeRegister*);
  Error* (*context_get)(ContextGet*);
  Error* (*state_set)(StateAccess*);
  Error* (*state_get)(StateAccess*);
  Error* (*memory_allocate)(MemoryAllocate*);
  Error* (*memory_free)(MemoryFree*);
  Error* (*thread_pool_schedule)(ThreadPoolSchedule*);
  Error* (*thread_pool_num_threads)(ThreadPoolNumThreads*);
  Error* (*future_create)(FutureCreate*);
  Error* (*future_set_available)(FutureSetError*);
  Error* (*future_set_error)(FutureSetError*);
  Error* (*run_id_get)(RunIdGet*);
  Error* (*device_ordinal_get)(DeviceOrdinalGet*);
  Error* (*find_extension)(FindExtension*);  // not in 0.3
  Error* (*custom_options_get)(OptionsGet*);
};

}  // namespace stablexla::ffi
