// ABI of the PJRT C API, as far as a plugin for JAX needs it: the table of functions and the layout of their arguments.
// Names and order are those of version 0.114 of xla/pjrt/c/pjrt_c_api.h; a test compares sizes and offsets. A minor
// version only appends; what a caller passes says by struct_size how far it goes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stablexla::pjrt {

// Ours to define.
struct PJRT_Error;
struct PJRT_Event;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_DeviceDescription;
struct PJRT_Memory;
struct PJRT_Buffer;
struct PJRT_Executable;
struct PJRT_LoadedExecutable;
struct PJRT_TopologyDescription;
struct PJRT_Device_Attributes;
struct PJRT_ExecuteContext {};  // for handlers of the foreign function interface
struct PJRT_AsyncHostToDeviceTransferManager;

using PJRT_Event_OnReadyCallback = void (*)(PJRT_Error* error, void* user_arg);

// XLA's numbers of element types.
enum PJRT_Buffer_Type : int {};

struct PJRT_LogicalDeviceIds {
  int replica, partition;
};

// What every structure of arguments begins with.
struct Args {
  std::size_t struct_size;
  void* extension_start;
};

// The functions, in the order of the table.
#define STABLEXLA_PJRT_FUNCTIONS(X) \
    X(Error_Destroy) X(Error_Message) X(Error_GetCode) X(Plugin_Initialize) X(Plugin_Attributes) X(Event_Destroy) \
    X(Event_IsReady) X(Event_Error) X(Event_Await) X(Event_OnReady) X(Client_Create) X(Client_Destroy) \
    X(Client_PlatformName) X(Client_ProcessIndex) X(Client_PlatformVersion) X(Client_Devices) \
    X(Client_AddressableDevices) X(Client_LookupDevice) X(Client_LookupAddressableDevice) \
    X(Client_AddressableMemories) X(Client_Compile) X(Client_DefaultDeviceAssignment) \
    X(Client_BufferFromHostBuffer) X(DeviceDescription_Id) X(DeviceDescription_ProcessIndex) \
    X(DeviceDescription_Attributes) X(DeviceDescription_Kind) X(DeviceDescription_DebugString) \
    X(DeviceDescription_ToString) X(Device_GetDescription) X(Device_IsAddressable) X(Device_LocalHardwareId) \
    X(Device_AddressableMemories) X(Device_DefaultMemory) X(Device_MemoryStats) X(Memory_Id) X(Memory_Kind) \
    X(Memory_DebugString) X(Memory_ToString) X(Memory_AddressableByDevices) X(Executable_Destroy) \
    X(Executable_Name) X(Executable_NumReplicas) X(Executable_NumPartitions) X(Executable_NumOutputs) \
    X(Executable_SizeOfGeneratedCodeInBytes) X(Executable_GetCostAnalysis) X(Executable_OutputMemoryKinds) \
    X(Executable_OptimizedProgram) X(Executable_Serialize) X(LoadedExecutable_Destroy) \
    X(LoadedExecutable_GetExecutable) X(LoadedExecutable_AddressableDevices) X(LoadedExecutable_Delete) \
    X(LoadedExecutable_IsDeleted) X(LoadedExecutable_Execute) X(Executable_DeserializeAndLoad) \
    X(LoadedExecutable_Fingerprint) X(Buffer_Destroy) X(Buffer_ElementType) X(Buffer_Dimensions) \
    X(Buffer_UnpaddedDimensions) X(Buffer_DynamicDimensionIndices) X(Buffer_GetMemoryLayout) \
    X(Buffer_OnDeviceSizeInBytes) X(Buffer_Device) X(Buffer_Memory) X(Buffer_Delete) X(Buffer_IsDeleted) \
    X(Buffer_CopyToDevice) X(Buffer_ToHostBuffer) X(Buffer_IsOnCpu) X(Buffer_ReadyEvent) X(Buffer_UnsafePointer) \
    X(Buffer_IncreaseExternalReferenceCount) X(Buffer_DecreaseExternalReferenceCount) \
    X(Buffer_OpaqueDeviceMemoryDataPointer) X(CopyToDeviceStream_Destroy) X(CopyToDeviceStream_AddChunk) \
    X(CopyToDeviceStream_TotalBytes) X(CopyToDeviceStream_GranuleSize) X(CopyToDeviceStream_CurrentBytes) \
    X(TopologyDescription_Create) X(TopologyDescription_Destroy) X(TopologyDescription_PlatformName) \
    X(TopologyDescription_PlatformVersion) X(TopologyDescription_GetDeviceDescriptions) \
    X(TopologyDescription_Serialize) X(TopologyDescription_Attributes) X(Compile) X(Executable_OutputElementTypes) \
    X(Executable_OutputDimensions) X(Buffer_CopyToMemory) X(Client_CreateViewOfDeviceBuffer) \
    X(Executable_Fingerprint) X(Client_TopologyDescription) X(Executable_GetCompiledMemoryStats) X(Memory_Kind_Id) \
    X(ExecuteContext_Create) X(ExecuteContext_Destroy) X(Buffer_CopyRawToHost) \
    X(AsyncHostToDeviceTransferManager_Destroy) X(AsyncHostToDeviceTransferManager_TransferData) \
    X(Client_CreateBuffersForAsyncHostToDevice) X(AsyncHostToDeviceTransferManager_RetrieveBuffer) \
    X(AsyncHostToDeviceTransferManager_Device) X(AsyncHostToDeviceTransferManager_BufferCount) \
    X(AsyncHostToDeviceTransferManager_BufferSize) X(AsyncHostToDeviceTransferManager_SetBufferError) \
    X(AsyncHostToDeviceTransferManager_AddMetadata) X(Client_DmaMap) X(Client_DmaUnmap) \
    X(Client_CreateUninitializedBuffer) X(Client_UpdateGlobalProcessInfo) X(TopologyDescription_Deserialize) \
    X(Client_CreateAliasBuffer) X(Client_FulfillAliasBuffer) X(LoadedExecutable_GetDeviceAssignment) \
    X(Client_CreateErrorBuffer) X(AsyncHostToDeviceTransferManager_TransferLiteral) X(Buffer_CopyRawToHostFuture) \
    X(Device_PoisonExecution) X(Device_CreateAsyncTrackingEvent) X(AsyncTrackingEvent_Destroy) \
    X(Executable_GetCompileOptions) X(Buffer_DonateWithControlDependency) X(Event_Create) X(Event_Set) \
    X(Device_GetAttributes) X(Client_Load) X(LoadedExecutable_AddressableDeviceLogicalIds) X(Buffer_Bitcast) \
    X(Error_ForEachPayload) X(TopologyDescription_Fingerprint) X(Executable_ParameterMemoryKinds) \
    X(Device_ClearMemoryStats) X(TopologyDescription_MakeCanonicalShapeForMemorySpace) \
    X(TopologyDescription_GetMemorySpaceKindIds)

struct PJRT_Api_Version : Args { int major_version; int minor_version; };
constexpr int kInteger = 1, kIntegers = 2, kFloat = 3;  // kinds of named values
struct PJRT_NamedValue : Args {
  const char* name;
  std::size_t name_size;
  int type;
  union {
    const char* string_value;
    std::int64_t int64_value;
    const std::int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  std::size_t value_size;
};
struct PJRT_Program : Args { char* code; std::size_t code_size; const char* format; std::size_t format_size; };
struct PJRT_Buffer_MemoryLayout_Strides : Args { const std::int64_t* byte_strides; std::size_t num_byte_strides; };
struct PJRT_Buffer_MemoryLayout_Tiled : Args {
  const std::int64_t* minor_to_major; std::size_t minor_to_major_size; const std::int64_t* tile_dims;
  const std::size_t* tile_dim_sizes; std::size_t num_tiles;
};
struct PJRT_Buffer_MemoryLayout : Args {
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  int type;
};
struct PJRT_Error_Destroy_Args : Args { PJRT_Error* error; };
struct PJRT_Error_Message_Args : Args { PJRT_Error* error; const char* message; std::size_t message_size; };
struct PJRT_Error_GetCode_Args : Args { PJRT_Error* error; int code; };
struct PJRT_Error_ForEachPayload_Args : Args { PJRT_Error* error; void* visitor; void* user_arg; };
struct PJRT_Plugin_Initialize_Args : Args {};
struct PJRT_Plugin_Attributes_Args : Args { const PJRT_NamedValue* attributes; std::size_t num_attributes; };
struct PJRT_Event_Destroy_Args : Args { PJRT_Event* event; };
struct PJRT_Event_IsReady_Args : Args { PJRT_Event* event; bool is_ready; };
struct PJRT_Event_Error_Args : Args { PJRT_Event* event; };
struct PJRT_Event_Await_Args : Args { PJRT_Event* event; };
struct PJRT_Event_OnReady_Args : Args { PJRT_Event* event; PJRT_Event_OnReadyCallback callback; void* user_arg; };
struct PJRT_Client_Create_Args : Args {
  const PJRT_NamedValue* create_options; std::size_t num_options; void* kv_get_callback; void* kv_get_user_arg;
  void* kv_put_callback; void* kv_put_user_arg; PJRT_Client* client; void* kv_try_get_callback;
  void* kv_try_get_user_arg;
};
struct PJRT_Client_Destroy_Args : Args { PJRT_Client* client; };
struct PJRT_Client_PlatformName_Args : Args {
  PJRT_Client* client; const char* platform_name; std::size_t platform_name_size;
};
struct PJRT_Client_ProcessIndex_Args : Args { PJRT_Client* client; int process_index; };
struct PJRT_Client_PlatformVersion_Args : Args {
  PJRT_Client* client; const char* platform_version; std::size_t platform_version_size;
};
struct PJRT_Client_Devices_Args : Args { PJRT_Client* client; PJRT_Device* const* devices; std::size_t num_devices; };
struct PJRT_Client_AddressableDevices_Args : Args {
  PJRT_Client* client; PJRT_Device* const* addressable_devices; std::size_t num_addressable_devices;
};
struct PJRT_Client_LookupDevice_Args : Args { PJRT_Client* client; int id; PJRT_Device* device; };
struct PJRT_Client_LookupAddressableDevice_Args : Args {
  PJRT_Client* client; int local_hardware_id; PJRT_Device* addressable_device;
};
struct PJRT_Client_AddressableMemories_Args : Args {
  PJRT_Client* client; PJRT_Memory* const* addressable_memories; std::size_t num_addressable_memories;
};
struct PJRT_Client_Compile_Args : Args {
  PJRT_Client* client; PJRT_Program* program; const char* compile_options; std::size_t compile_options_size;
  PJRT_LoadedExecutable* executable;
};
struct PJRT_Client_DefaultDeviceAssignment_Args : Args {
  PJRT_Client* client; int num_replicas; int num_partitions; std::size_t default_assignment_size;
  int* default_assignment;
};
struct PJRT_Client_BufferFromHostBuffer_Args : Args {
  PJRT_Client* client; const void* data; PJRT_Buffer_Type type; const std::int64_t* dims; std::size_t num_dims;
  const std::int64_t* byte_strides; std::size_t num_byte_strides; int host_buffer_semantics; PJRT_Device* device;
  PJRT_Memory* memory; PJRT_Buffer_MemoryLayout* device_layout; PJRT_Event* done_with_host_buffer;
  PJRT_Buffer* buffer;
};
struct PJRT_Client_CreateViewOfDeviceBuffer_Args : Args {
  PJRT_Client* client; void* device_buffer_ptr; const std::int64_t* dims; std::size_t num_dims;
  PJRT_Buffer_Type element_type; PJRT_Buffer_MemoryLayout* layout; PJRT_Device* device;
  void (*on_delete_callback)(void* device_buffer_ptr, void* user_arg); void* on_delete_callback_arg;
  std::int64_t stream; PJRT_Buffer* buffer; PJRT_Memory* memory;
};
struct PJRT_Client_TopologyDescription_Args : Args { PJRT_Client* client; PJRT_TopologyDescription* topology; };
struct PJRT_Client_UpdateGlobalProcessInfo_Args : Args {
  PJRT_Client* client; void* process_infos; std::size_t num_process_infos;
};
struct PJRT_DeviceDescription_Id_Args : Args { PJRT_DeviceDescription* device_description; int id; };
struct PJRT_DeviceDescription_ProcessIndex_Args : Args {
  PJRT_DeviceDescription* device_description; int process_index;
};
struct PJRT_DeviceDescription_Attributes_Args : Args {
  PJRT_DeviceDescription* device_description; std::size_t num_attributes; const PJRT_NamedValue* attributes;
};
struct PJRT_DeviceDescription_Kind_Args : Args {
  PJRT_DeviceDescription* device_description; const char* device_kind; std::size_t device_kind_size;
};
struct PJRT_DeviceDescription_DebugString_Args : Args {
  PJRT_DeviceDescription* device_description; const char* debug_string; std::size_t debug_string_size;
};
struct PJRT_DeviceDescription_ToString_Args : Args {
  PJRT_DeviceDescription* device_description; const char* to_string; std::size_t to_string_size;
};
struct PJRT_Device_GetDescription_Args : Args { PJRT_Device* device; PJRT_DeviceDescription* device_description; };
struct PJRT_Device_IsAddressable_Args : Args { PJRT_Device* device; bool is_addressable; };
struct PJRT_Device_LocalHardwareId_Args : Args { PJRT_Device* device; int local_hardware_id; };
struct PJRT_Device_AddressableMemories_Args : Args {
  PJRT_Device* device; PJRT_Memory* const* memories; std::size_t num_memories;
};
struct PJRT_Device_DefaultMemory_Args : Args { PJRT_Device* device; PJRT_Memory* memory; };
struct PJRT_Device_MemoryStats_Args : Args {
  PJRT_Device* device; std::int64_t bytes_in_use; std::int64_t peak_bytes_in_use; bool peak_bytes_in_use_is_set;
  std::int64_t num_allocs; bool num_allocs_is_set; std::int64_t largest_alloc_size; bool largest_alloc_size_is_set;
  std::int64_t bytes_limit; bool bytes_limit_is_set; std::int64_t bytes_reserved; bool bytes_reserved_is_set;
  std::int64_t peak_bytes_reserved; bool peak_bytes_reserved_is_set; std::int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set; std::int64_t largest_free_block_bytes; bool largest_free_block_bytes_is_set;
  std::int64_t pool_bytes; bool pool_bytes_is_set; std::int64_t peak_pool_bytes; bool peak_pool_bytes_is_set;
  std::int64_t peak_allocated_bytes; bool peak_allocated_bytes_is_set;
};
struct PJRT_Device_GetAttributes_Args : Args {
  PJRT_Device* device; const PJRT_NamedValue* attributes; std::size_t num_attributes;
  PJRT_Device_Attributes* device_attributes; void (*attributes_deleter)(PJRT_Device_Attributes*);
};
struct PJRT_Memory_Id_Args : Args { PJRT_Memory* memory; int id; };
struct PJRT_Memory_Kind_Args : Args { PJRT_Memory* memory; const char* kind; std::size_t kind_size; };
struct PJRT_Memory_Kind_Id_Args : Args { PJRT_Memory* memory; int kind_id; };
struct PJRT_Memory_DebugString_Args : Args {
  PJRT_Memory* memory; const char* debug_string; std::size_t debug_string_size;
};
struct PJRT_Memory_ToString_Args : Args { PJRT_Memory* memory; const char* to_string; std::size_t to_string_size; };
struct PJRT_Memory_AddressableByDevices_Args : Args {
  PJRT_Memory* memory; PJRT_Device* const* devices; std::size_t num_devices;
};
struct PJRT_Executable_Destroy_Args : Args { PJRT_Executable* executable; };
struct PJRT_Executable_Name_Args : Args {
  PJRT_Executable* executable; const char* executable_name; std::size_t executable_name_size;
};
struct PJRT_Executable_NumReplicas_Args : Args { PJRT_Executable* executable; std::size_t num_replicas; };
struct PJRT_Executable_NumPartitions_Args : Args { PJRT_Executable* executable; std::size_t num_partitions; };
struct PJRT_Executable_NumOutputs_Args : Args { PJRT_Executable* executable; std::size_t num_outputs; };
struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args : Args {
  PJRT_Executable* executable; std::int64_t size_in_bytes;
};
struct PJRT_Executable_GetCostAnalysis_Args : Args {
  PJRT_Executable* executable; std::size_t num_properties; const PJRT_NamedValue* properties;
};
struct PJRT_Executable_OutputMemoryKinds_Args : Args {
  PJRT_Executable* executable; std::size_t num_outputs; const char* const* memory_kinds;
  const std::size_t* memory_kind_sizes;
};
struct PJRT_Executable_OptimizedProgram_Args : Args { PJRT_Executable* executable; PJRT_Program* program; };
struct PJRT_Executable_OutputElementTypes_Args : Args {
  PJRT_Executable* executable; const PJRT_Buffer_Type* output_types; std::size_t num_output_types;
};
struct PJRT_Executable_OutputDimensions_Args : Args {
  PJRT_Executable* executable; std::size_t num_outputs; const std::int64_t* dims; const std::size_t* dim_sizes;
};
struct PJRT_Executable_Fingerprint_Args : Args {
  PJRT_Executable* executable; const char* executable_fingerprint; std::size_t executable_fingerprint_size;
};
struct PJRT_Executable_GetCompiledMemoryStats_Args : Args {
  PJRT_Executable* executable; std::int64_t generated_code_size_in_bytes; std::int64_t argument_size_in_bytes;
  std::int64_t output_size_in_bytes; std::int64_t alias_size_in_bytes; std::int64_t temp_size_in_bytes;
  std::int64_t host_generated_code_size_in_bytes; std::int64_t host_argument_size_in_bytes;
  std::int64_t host_output_size_in_bytes; std::int64_t host_alias_size_in_bytes;
  std::int64_t host_temp_size_in_bytes; std::int64_t peak_memory_in_bytes; std::int64_t total_size_in_bytes;
  std::int64_t total_allocation_bytes; std::int64_t indefinite_allocations; std::int64_t peak_unpadded_heap_bytes;
};
struct PJRT_SerializedExecutable;
struct PJRT_Executable_Serialize_Args : Args {
  PJRT_Executable* executable; const char* serialized_bytes; std::size_t serialized_bytes_size;
  PJRT_SerializedExecutable* serialized_executable;
  void (*serialized_executable_deleter)(PJRT_SerializedExecutable*);
};
struct PJRT_Executable_DeserializeAndLoad_Args : Args {
  PJRT_Client* client; const char* serialized_executable; std::size_t serialized_executable_size;
  PJRT_LoadedExecutable* loaded_executable; const char* overridden_serialized_compile_options;
  std::size_t overridden_serialized_compile_options_size; void* load_options;
};
struct PJRT_LoadedExecutable_Destroy_Args : Args { PJRT_LoadedExecutable* executable; };
struct PJRT_LoadedExecutable_GetExecutable_Args : Args {
  PJRT_LoadedExecutable* loaded_executable; PJRT_Executable* executable;
};
struct PJRT_LoadedExecutable_AddressableDevices_Args : Args {
  PJRT_LoadedExecutable* executable; PJRT_Device* const* addressable_devices; std::size_t num_addressable_devices;
};
struct PJRT_LoadedExecutable_Delete_Args : Args { PJRT_LoadedExecutable* executable; };
struct PJRT_LoadedExecutable_IsDeleted_Args : Args { PJRT_LoadedExecutable* executable; bool is_deleted; };
struct PJRT_ExecuteOptions : Args {
  void* send_callbacks; void* recv_callbacks; std::size_t num_send_ops; std::size_t num_recv_ops; int launch_id;
  const std::int64_t* non_donatable_input_indices; std::size_t num_non_donatable_input_indices; void* context;
  void* call_location; std::size_t num_tasks; void* task_ids; void* incarnation_ids; void* multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks; void* hlo_output_callbacks;
  std::size_t num_hlo_output_callbacks;
};
struct PJRT_LoadedExecutable_Execute_Args : Args {
  PJRT_LoadedExecutable* executable; PJRT_ExecuteOptions* options; PJRT_Buffer* const* const* argument_lists;
  std::size_t num_devices; std::size_t num_args; PJRT_Buffer** const* output_lists;
  PJRT_Event** device_complete_events; PJRT_Device* execute_device;
};
struct PJRT_LoadedExecutable_Fingerprint_Args : Args {
  PJRT_LoadedExecutable* executable; const char* executable_fingerprint; std::size_t executable_fingerprint_size;
};
struct PJRT_LoadedExecutable_GetDeviceAssignment_Args : Args {
  PJRT_LoadedExecutable* executable; const char* serialized_bytes; std::size_t serialized_bytes_size;
  void* serialized_device_assignment; void* serialized_device_assignment_deleter;
};
struct PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args : Args {
  PJRT_LoadedExecutable* executable; PJRT_LogicalDeviceIds* addressable_device_logical_ids;
  std::size_t num_addressable_device_logical_ids;
};
struct PJRT_Buffer_Destroy_Args : Args { PJRT_Buffer* buffer; };
struct PJRT_Buffer_ElementType_Args : Args { PJRT_Buffer* buffer; PJRT_Buffer_Type type; };
struct PJRT_Buffer_Dimensions_Args : Args { PJRT_Buffer* buffer; const std::int64_t* dims; std::size_t num_dims; };
struct PJRT_Buffer_UnpaddedDimensions_Args : Args {
  PJRT_Buffer* buffer; const std::int64_t* unpadded_dims; std::size_t num_dims;
};
struct PJRT_Buffer_DynamicDimensionIndices_Args : Args {
  PJRT_Buffer* buffer; const std::size_t* dynamic_dim_indices; std::size_t num_dynamic_dims;
};
struct PJRT_Buffer_GetMemoryLayout_Args : Args { PJRT_Buffer* buffer; PJRT_Buffer_MemoryLayout layout; };
struct PJRT_Buffer_OnDeviceSizeInBytes_Args : Args { PJRT_Buffer* buffer; std::size_t on_device_size_in_bytes; };
struct PJRT_Buffer_Device_Args : Args { PJRT_Buffer* buffer; PJRT_Device* device; };
struct PJRT_Buffer_Memory_Args : Args { PJRT_Buffer* buffer; PJRT_Memory* memory; };
struct PJRT_Buffer_Delete_Args : Args { PJRT_Buffer* buffer; };
struct PJRT_Buffer_IsDeleted_Args : Args { PJRT_Buffer* buffer; bool is_deleted; };
struct PJRT_Buffer_CopyToDevice_Args : Args {
  PJRT_Buffer* buffer; PJRT_Device* dst_device; PJRT_Buffer* dst_buffer;
};
struct PJRT_Buffer_CopyToMemory_Args : Args {
  PJRT_Buffer* buffer; PJRT_Memory* dst_memory; PJRT_Buffer* dst_buffer;
};
struct PJRT_Buffer_ToHostBuffer_Args : Args {
  PJRT_Buffer* src; PJRT_Buffer_MemoryLayout* host_layout; void* dst; std::size_t dst_size; PJRT_Event* event;
};
struct PJRT_Buffer_IsOnCpu_Args : Args { PJRT_Buffer* buffer; bool is_on_cpu; };
struct PJRT_Buffer_ReadyEvent_Args : Args { PJRT_Buffer* buffer; PJRT_Event* event; };
struct PJRT_Buffer_UnsafePointer_Args : Args { PJRT_Buffer* buffer; std::size_t buffer_pointer; };
struct PJRT_Buffer_IncreaseExternalReferenceCount_Args : Args { PJRT_Buffer* buffer; };
struct PJRT_Buffer_DecreaseExternalReferenceCount_Args : Args { PJRT_Buffer* buffer; };
struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args : Args { PJRT_Buffer* buffer; void* device_memory_ptr; };
struct PJRT_ShapeSpec : Args { const std::int64_t* dims; std::size_t num_dims; PJRT_Buffer_Type element_type; };
struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args : Args {
  PJRT_Client* client; const PJRT_ShapeSpec* shape_specs; std::size_t num_shape_specs;
  PJRT_Buffer_MemoryLayout** device_layouts; std::size_t num_device_layouts; PJRT_Memory* memory;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; int buffer_index; const void* data; std::int64_t offset;
  std::int64_t transfer_size; bool is_last_transfer; PJRT_Event* done_with_h2d_transfer;
};
struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; int buffer_index; const void* data;
  const std::int64_t* shape_dims; std::size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout; PJRT_Event* done_with_h2d_transfer;
};
struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; int buffer_index; PJRT_Buffer* buffer_out;
};
struct PJRT_AsyncHostToDeviceTransferManager_Device_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; PJRT_Device* device_out;
};
struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; std::size_t buffer_count;
};
struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; int buffer_index; std::size_t buffer_size;
};
struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; int buffer_index; int error_code;
  const char* error_message; std::size_t error_message_size;
};
struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args : Args {
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager; const PJRT_NamedValue* transfer_metadata;
  std::size_t num_metadata;
};
struct PJRT_Client_CreateUninitializedBuffer_Args : Args {
  PJRT_Client* client; const std::int64_t* shape_dims; std::size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type; PJRT_Buffer_MemoryLayout* shape_layout; PJRT_Device* device;
  PJRT_Memory* memory; PJRT_Buffer* buffer;
};
struct PJRT_Client_CreateErrorBuffer_Args : Args {
  PJRT_Client* client; int error_code; const char* error_message; std::size_t error_message_size;
  const std::int64_t* shape_dims; std::size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout; PJRT_Memory* memory; PJRT_Buffer* buffer; void* payload;
  std::size_t num_payload;
};
struct PJRT_Buffer_CopyRawToHost_Args : Args {
  PJRT_Buffer* buffer; void* dst; std::int64_t offset; std::int64_t transfer_size; PJRT_Event* event;
};
struct PJRT_Event_Create_Args : Args { PJRT_Event* event; };
struct PJRT_Event_Set_Args : Args {
  PJRT_Event* event; int error_code; const char* error_message; std::size_t error_message_size;
};
struct PJRT_Device_ClearMemoryStats_Args : Args { PJRT_Device* device; };
struct PJRT_ExecuteContext_Create_Args : Args { PJRT_ExecuteContext* context; };
struct PJRT_ExecuteContext_Destroy_Args : Args { PJRT_ExecuteContext* context; };
struct PJRT_Compile_Args : Args {
  PJRT_TopologyDescription* topology; PJRT_Program* program; const char* compile_options;
  std::size_t compile_options_size; PJRT_Client* client; PJRT_Executable* executable;
};
struct PJRT_Client_Load_Args : Args {
  PJRT_Client* client; PJRT_Executable* executable; const char* compile_options; std::size_t compile_options_size;
  PJRT_LoadedExecutable* loaded_executable;
};
struct PJRT_TopologyDescription_Create_Args : Args {
  const char* topology_name; std::size_t topology_name_size; const PJRT_NamedValue* create_options;
  std::size_t num_options; PJRT_TopologyDescription* topology;
};
struct PJRT_TopologyDescription_Serialize_Args : Args {
  PJRT_TopologyDescription* topology; const char* serialized_bytes; std::size_t serialized_bytes_size;
  void* serialized_topology; void* serialized_topology_deleter;
};
struct PJRT_TopologyDescription_Deserialize_Args : Args {
  const char* serialized_topology; std::size_t serialized_topology_size; PJRT_TopologyDescription* topology;
};
struct PJRT_TopologyDescription_Destroy_Args : Args { PJRT_TopologyDescription* topology; };
struct PJRT_TopologyDescription_PlatformName_Args : Args {
  PJRT_TopologyDescription* topology; const char* platform_name; std::size_t platform_name_size;
};
struct PJRT_TopologyDescription_PlatformVersion_Args : Args {
  PJRT_TopologyDescription* topology; const char* platform_version; std::size_t platform_version_size;
};
struct PJRT_TopologyDescription_GetDeviceDescriptions_Args : Args {
  PJRT_TopologyDescription* topology; PJRT_DeviceDescription* const* descriptions; std::size_t num_descriptions;
};
struct PJRT_TopologyDescription_Attributes_Args : Args {
  PJRT_TopologyDescription* topology; const PJRT_NamedValue* attributes; std::size_t num_attributes;
};
struct PJRT_TopologyDescription_Fingerprint_Args : Args {
  PJRT_TopologyDescription* topology; std::uint64_t fingerprint;
};
struct PJRT_Shardings_PJRT_Executable_ParameterShardings_Args : Args {
  PJRT_Executable* executable; std::size_t num_parameters; const char* const* shardings;
  const std::size_t* sharding_sizes;
};
struct PJRT_Shardings_PJRT_Executable_OutputShardings_Args : Args {
  PJRT_Executable* executable; std::size_t num_outputs; const char* const* shardings;
  const std::size_t* sharding_sizes;
};

struct PJRT_Layouts_MemoryLayout;
struct PJRT_Layouts_SerializedLayout;
struct PJRT_Layouts_MemoryLayout_Destroy_Args : Args { PJRT_Layouts_MemoryLayout* layout; };
struct PJRT_Layouts_MemoryLayout_Serialize_Args : Args {
  PJRT_Layouts_MemoryLayout* layout; const char* serialized_bytes; std::size_t serialized_bytes_size;
  PJRT_Layouts_SerializedLayout* serialized_layout;
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout*);
};
struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args : Args { PJRT_Buffer* buffer; PJRT_Layouts_MemoryLayout* layout; };
struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args : Args {
  PJRT_Client* client; PJRT_Buffer_Type type; const std::int64_t* dims; std::size_t num_dims;
  PJRT_Layouts_MemoryLayout* layout;
};
struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args : Args {
  PJRT_TopologyDescription* topology_description; PJRT_Buffer_Type type; const std::int64_t* dims;
  std::size_t num_dims; PJRT_Layouts_MemoryLayout* layout;
};
struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args : Args {
  PJRT_Executable* executable; std::size_t num_outputs; PJRT_Layouts_MemoryLayout* const* layouts;
};
struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args : Args {
  PJRT_Executable* executable; std::size_t num_parameters; PJRT_Layouts_MemoryLayout* const* layouts;
};

// The extension for handlers of XLA's foreign function interface.
struct PJRT_FFI_Type_Info {
  void (*deleter)(void* object);
  void* serialize;
  void* deserialize;
};
struct PJRT_FFI_Type_Register_Args : Args {
  const char* type_name; std::size_t type_name_size; std::int64_t type_id; const PJRT_FFI_Type_Info* type_info;
};
struct PJRT_FFI_Register_Handler_Args {  // without the place of an extension
  std::size_t struct_size;
  const char* target_name;
  std::size_t target_name_size;
  void* handler;
  const char* platform_name;
  std::size_t platform_name_size;
  int traits;
};

struct PJRT_Api : Args {
  PJRT_Api_Version pjrt_api_version;
#define STABLEXLA_PJRT_SLOT(name) void* name;
  STABLEXLA_PJRT_FUNCTIONS(STABLEXLA_PJRT_SLOT)
#undef STABLEXLA_PJRT_SLOT
};

// An extension of the table: the number of its kind, and the next one.
struct PJRT_Extension_Base {
  std::size_t struct_size;
  int type;
  PJRT_Extension_Base* next;
};

constexpr int kProfiler = 1, kLayouts = 4, kFfi = 5, kShardings = 19;
struct PJRT_FFI_Extension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  void* register_handler;
};
struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
  void* PJRT_Layouts_MemoryLayout_Destroy;
  void* PJRT_Layouts_MemoryLayout_Serialize;
  void* PJRT_Layouts_PJRT_Client_GetDefaultLayout;
  void* PJRT_Layouts_PJRT_Buffer_MemoryLayout;
  void* PJRT_Layouts_PJRT_Topology_GetDefaultLayout;
  void* PJRT_Layouts_PJRT_Executable_GetOutputLayouts;
  void* PJRT_Layouts_PJRT_Executable_GetParameterLayouts;
};

struct PJRT_Shardings_Extension {
  PJRT_Extension_Base base;
  void* PJRT_Shardings_PJRT_Executable_ParameterShardings;
  void* PJRT_Shardings_PJRT_Executable_OutputShardings;
};

// The profiler has a table of its own, whose arguments have no extensions.
struct PLUGIN_Profiler;
struct PLUGIN_Profiler_Error;
struct PLUGIN_Profiler_Error_Destroy_Args { std::size_t struct_size; void* priv; PLUGIN_Profiler_Error* error; };
struct PLUGIN_Profiler_Error_Message_Args {
  std::size_t struct_size; void* priv; const PLUGIN_Profiler_Error* error; const char* message; std::size_t message_size;
};
struct PLUGIN_Profiler_Error_GetCode_Args {
  std::size_t struct_size; void* priv; const PLUGIN_Profiler_Error* error; int code;
};
struct PLUGIN_Profiler_Create_Args {
  std::size_t struct_size; const char* options; std::size_t options_size; PLUGIN_Profiler* profiler;
};
struct PLUGIN_Profiler_Destroy_Args { std::size_t struct_size; PLUGIN_Profiler* profiler; };
struct PLUGIN_Profiler_Start_Args { std::size_t struct_size; PLUGIN_Profiler* profiler; };
struct PLUGIN_Profiler_Stop_Args { std::size_t struct_size; PLUGIN_Profiler* profiler; };
struct PLUGIN_Profiler_CollectData_Args {
  std::size_t struct_size; PLUGIN_Profiler* profiler; std::uint8_t* buffer; std::size_t buffer_size_in_bytes;
};
struct PLUGIN_Profiler_Api {
  std::size_t struct_size;
  void* priv;
  void (*error_destroy)(PLUGIN_Profiler_Error_Destroy_Args*);
  void (*error_message)(PLUGIN_Profiler_Error_Message_Args*);
  PLUGIN_Profiler_Error* (*error_get_code)(PLUGIN_Profiler_Error_GetCode_Args*);
  PLUGIN_Profiler_Error* (*create)(PLUGIN_Profiler_Create_Args*);
  PLUGIN_Profiler_Error* (*destroy)(PLUGIN_Profiler_Destroy_Args*);
  PLUGIN_Profiler_Error* (*start)(PLUGIN_Profiler_Start_Args*);
  PLUGIN_Profiler_Error* (*stop)(PLUGIN_Profiler_Stop_Args*);
  PLUGIN_Profiler_Error* (*collect_data)(PLUGIN_Profiler_CollectData_Args*);
};

struct PJRT_Profiler_Extension {
  PJRT_Extension_Base base;
  PLUGIN_Profiler_Api* profiler_api;
  std::int64_t traceme_context_id;  // of arguments' extensions
};

}  // namespace stablexla::pjrt
