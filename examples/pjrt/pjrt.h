/* What the examples use of the PJRT C API, version 0.104; xla/pjrt/c/pjrt_c_api.h of OpenXLA declares all of it.
   Every structure of arguments begins with its size, by which a plugin knows which fields the caller has. */
#ifndef EXAMPLES_PJRT_H
#define EXAMPLES_PJRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;

#define PJRT_BEGIN size_t struct_size; void* extension_start

enum { PJRT_F32 = 11 };                    /* PJRT_Buffer_Type */
enum { PJRT_COPIED_DURING_CALL = 0 };      /* PJRT_HostBufferSemantics */

typedef struct { PJRT_BEGIN; PJRT_Error* error; } PJRT_Error_Destroy_Args;
typedef struct { PJRT_BEGIN; const PJRT_Error* error; const char* message; size_t message_size; } PJRT_Error_Message_Args;
typedef struct { PJRT_BEGIN; const PJRT_Error* error; int code; } PJRT_Error_GetCode_Args;
typedef struct { PJRT_BEGIN; PJRT_Event* event; } PJRT_Event_Args; /* of Destroy and Await */
typedef struct {
  PJRT_BEGIN;
  const void* create_options;
  size_t num_options;
  void *kv_get_callback, *kv_get_user_arg, *kv_put_callback, *kv_put_user_arg;
  PJRT_Client* client;
  void *kv_try_get_callback, *kv_try_get_user_arg;
} PJRT_Client_Create_Args;
typedef struct { PJRT_BEGIN; PJRT_Client* client; } PJRT_Client_Destroy_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_Client* client;
  PJRT_Device* const* addressable_devices;
  size_t num_addressable_devices;
} PJRT_Client_AddressableDevices_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_LoadedExecutable* executable;
  PJRT_Device* const* addressable_devices;
  size_t num_addressable_devices;
} PJRT_LoadedExecutable_AddressableDevices_Args;
typedef struct { PJRT_BEGIN; char* code; size_t code_size; const char* format; size_t format_size; } PJRT_Program;
typedef struct {
  PJRT_BEGIN;
  PJRT_Client* client;
  const PJRT_Program* program;
  const char* compile_options; /* a CompileOptionsProto; none has the defaults */
  size_t compile_options_size;
  PJRT_LoadedExecutable* executable;
} PJRT_Client_Compile_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  PJRT_LoadedExecutable* loaded_executable;
  const char* overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
  void* load_options;
} PJRT_Executable_DeserializeAndLoad_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_Client* client;
  const void* data;
  int type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides; /* none for the order of rows */
  size_t num_byte_strides;
  int host_buffer_semantics;
  PJRT_Device* device;
  void *memory, *device_layout;
  PJRT_Event* done_with_host_buffer;
  PJRT_Buffer* buffer;
} PJRT_Client_BufferFromHostBuffer_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_Client* client;
  void* device_buffer_ptr;
  const int64_t* dims;
  size_t num_dims;
  int element_type;
  void* layout;
  PJRT_Device* device;
  void (*on_delete_callback)(void* device_buffer_ptr, void* user_arg);
  void* on_delete_callback_arg;
  intptr_t stream;
  PJRT_Buffer* buffer;
  void* memory;
} PJRT_Client_CreateViewOfDeviceBuffer_Args;
typedef struct { PJRT_BEGIN; PJRT_Buffer* buffer; uintptr_t buffer_pointer; } PJRT_Buffer_UnsafePointer_Args;
typedef struct { PJRT_BEGIN; PJRT_Buffer* buffer; } PJRT_Buffer_Destroy_Args;
typedef struct { PJRT_BEGIN; PJRT_Buffer* buffer; const int64_t* dims; size_t num_dims; } PJRT_Buffer_Dimensions_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_Buffer* src;
  void *host_layout, *dst;
  size_t dst_size; /* asked for where there is no dst */
  PJRT_Event* event;
} PJRT_Buffer_ToHostBuffer_Args;
typedef struct { PJRT_BEGIN; PJRT_LoadedExecutable* loaded_executable; PJRT_Executable* executable; } PJRT_LoadedExecutable_GetExecutable_Args;
typedef struct { PJRT_BEGIN; PJRT_Executable* executable; size_t num_outputs; } PJRT_Executable_NumOutputs_Args;
typedef struct { PJRT_BEGIN; PJRT_Executable* executable; } PJRT_Executable_Destroy_Args;
typedef struct { PJRT_BEGIN; PJRT_LoadedExecutable* executable; } PJRT_LoadedExecutable_Destroy_Args;
typedef struct {
  PJRT_BEGIN;
  PJRT_LoadedExecutable* executable;
  void* options;
  PJRT_Buffer* const* const* argument_lists; /* by device */
  size_t num_devices, num_args;
  PJRT_Buffer** const* output_lists;
  PJRT_Event** device_complete_events;
  PJRT_Device* execute_device;
} PJRT_LoadedExecutable_Execute_Args;

typedef PJRT_Error* PJRT_Function(void* args);

/* The table: its slots by their places, which never change. */
typedef struct {
  PJRT_BEGIN;
  struct { PJRT_BEGIN; int major_version, minor_version; } version;
  PJRT_Function* slots[];
} PJRT_Api;

enum {
  PJRT_Error_Destroy = 0,
  PJRT_Error_Message = 1,
  PJRT_Error_GetCode = 2,
  PJRT_Event_Destroy = 5,
  PJRT_Event_Await = 8,
  PJRT_Client_Create = 10,
  PJRT_Client_Destroy = 11,
  PJRT_Client_AddressableDevices = 16,
  PJRT_Client_Compile = 20,
  PJRT_Client_BufferFromHostBuffer = 22,
  PJRT_Executable_Destroy = 40,
  PJRT_Executable_NumOutputs = 44,
  PJRT_LoadedExecutable_Destroy = 50,
  PJRT_LoadedExecutable_GetExecutable = 51,
  PJRT_LoadedExecutable_AddressableDevices = 52,
  PJRT_LoadedExecutable_Execute = 55,
  PJRT_Executable_DeserializeAndLoad = 56,
  PJRT_Buffer_Destroy = 58,
  PJRT_Buffer_Dimensions = 60,
  PJRT_Buffer_ToHostBuffer = 70,
  PJRT_Buffer_UnsafePointer = 73,
  PJRT_Client_CreateViewOfDeviceBuffer = 93
};

#endif
