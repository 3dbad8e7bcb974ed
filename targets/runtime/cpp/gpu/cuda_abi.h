// The part of the CUDA driver's binary interface that is used here: numbers, handles, and the functions of libcuda.so.1.
// Written from the driver's documentation, so that no toolkit is needed to build. Functions are found when they are
// first needed (gpu_driver.h); the tests' simulated driver exports the same ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stablexla::cuda {

using Ordinal = int;            // a device's number
using Address = std::uint64_t;  // of device memory

using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using MemoryPool = struct MemoryPoolTag*;

// The default streams of every context.
inline const Stream kLegacyStream = reinterpret_cast<Stream>(std::uintptr_t(1));
inline const Stream kPerThreadStream = reinterpret_cast<Stream>(std::uintptr_t(2));

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kJitCompilerNotFound = 221,
  kUnsupportedPtxVersion = 222,
  kInvalidSource = 300,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssertFailed = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidProgramCounter = 718,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kUnknown = 999,
};

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxGridDimX = 5,
  kMaxSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kMaxRegistersPerBlock = 12,
  kClockRate = 13,  // kHz
  kMultiprocessorCount = 16,
  kMemoryClockRate = 36,  // kHz
  kGlobalMemoryBusWidth = 37,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxSharedMemoryPerBlockOptin = 97,
  kReservedSharedMemoryPerBlock = 111,
  kMemoryPoolsSupported = 115,
};

enum FunctionAttribute : int {
  kFunctionMaxThreadsPerBlock = 0,
  kFunctionSharedSizeBytes = 1,
  kFunctionConstSizeBytes = 2,
  kFunctionLocalSizeBytes = 3,
  kFunctionNumRegs = 4,
  kFunctionPtxVersion = 5,
  kFunctionBinaryVersion = 6,
  kFunctionMaxDynamicSharedSizeBytes = 8,
  kFunctionPreferredSharedMemoryCarveout = 9,
};

// Of a module that is loaded; values are passed in an array of pointers, numbers as pointers of that value.
enum JitOption : int {
  kJitInfoLogBuffer = 3,
  kJitInfoLogBufferSizeBytes = 4,
  kJitErrorLogBuffer = 5,
  kJitErrorLogBufferSizeBytes = 6,
  kJitOptimizationLevel = 7,
};

enum MemoryPoolAttribute : int {  // all are of 64 bits
  kPoolReleaseThreshold = 4,
  kPoolReservedMemCurrent = 5,
  kPoolReservedMemHigh = 6,
  kPoolUsedMemCurrent = 7,
  kPoolUsedMemHigh = 8,
};

enum PointerAttribute : int {
  kPointerMemoryType = 2,      // unsigned: a MemoryType
  kPointerDeviceOrdinal = 9,  // int
};

enum MemoryType : unsigned { kMemoryHost = 1, kMemoryDevice = 2, kMemoryArray = 3, kMemoryUnified = 4 };

enum Flag : unsigned {
  kStreamNonBlocking = 1,
  kEventDefault = 0,
  kEventDisableTiming = 2,
  kHostAllocPortable = 1,
};

}  // namespace stablexla::cuda

// Each function by name and parameters; all return a Result.
#define STABLEXLA_CUDA_FUNCTIONS(X)                                                                                   \
  X(cuInit, (unsigned flags))                                                                                         \
  X(cuDriverGetVersion, (int* version))                                                                               \
  X(cuGetErrorName, (Result error, const char** text))                                                                \
  X(cuGetErrorString, (Result error, const char** text))                                                              \
  X(cuDeviceGetCount, (int* count))                                                                                   \
  X(cuDeviceGet, (Ordinal* device, int ordinal))                                                                      \
  X(cuDeviceGetName, (char* name, int length, Ordinal device))                                                        \
  X(cuDeviceGetAttribute, (int* value, DeviceAttribute attribute, Ordinal device))                                    \
  X(cuDeviceTotalMem_v2, (std::size_t* bytes, Ordinal device))                                                        \
  X(cuDevicePrimaryCtxRetain, (Context* context, Ordinal device))                                                     \
  X(cuDevicePrimaryCtxRelease_v2, (Ordinal device))                                                                   \
  X(cuCtxPushCurrent_v2, (Context context))                                                                           \
  X(cuCtxPopCurrent_v2, (Context* context))                                                                           \
  X(cuCtxSynchronize, ())                                                                                             \
  X(cuModuleLoadDataEx, (Module* module, const void* image, unsigned count, JitOption* options, void** values))       \
  X(cuModuleUnload, (Module module))                                                                                  \
  X(cuModuleGetFunction, (Function* function, Module module, const char* name))                                       \
  X(cuFuncSetAttribute, (Function function, FunctionAttribute attribute, int value))                                  \
  X(cuFuncGetAttribute, (int* value, FunctionAttribute attribute, Function function))                                 \
  X(cuLaunchKernel, (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,     \
                     void** extra))                                                                                   \
  X(cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                                                         \
  X(cuMemAlloc_v2, (Address* address, std::size_t bytes))                                                             \
  X(cuMemFree_v2, (Address address))                                                                                  \
  X(cuMemAllocAsync, (Address* address, std::size_t bytes, Stream stream))                                            \
  X(cuMemFreeAsync, (Address address, Stream stream))                                                                 \
  X(cuDeviceGetDefaultMemPool, (MemoryPool* pool, Ordinal device))                                                    \
  X(cuMemPoolSetAttribute, (MemoryPool pool, MemoryPoolAttribute attribute, void* value))                             \
  X(cuMemPoolGetAttribute, (MemoryPool pool, MemoryPoolAttribute attribute, void* value))                             \
  X(cuMemPoolTrimTo, (MemoryPool pool, std::size_t keep))                                                             \
  X(cuMemcpyHtoDAsync_v2, (Address to, const void* from, std::size_t bytes, Stream stream))                           \
  X(cuMemcpyDtoHAsync_v2, (void* to, Address from, std::size_t bytes, Stream stream))                                 \
  X(cuMemcpyDtoDAsync_v2, (Address to, Address from, std::size_t bytes, Stream stream))                               \
  X(cuMemsetD8Async, (Address to, unsigned char value, std::size_t bytes, Stream stream))                             \
  X(cuMemHostAlloc, (void** memory, std::size_t bytes, unsigned flags))                                               \
  X(cuMemFreeHost, (void* memory))                                                                                    \
  X(cuPointerGetAttribute, (void* value, PointerAttribute attribute, Address address))                                \
  X(cuStreamCreate, (Stream* stream, unsigned flags))                                                                 \
  X(cuStreamDestroy_v2, (Stream stream))                                                                              \
  X(cuStreamSynchronize, (Stream stream))                                                                             \
  X(cuStreamQuery, (Stream stream))                                                                                   \
  X(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                                  \
  X(cuEventCreate, (Event* event, unsigned flags))                                                                    \
  X(cuEventDestroy_v2, (Event event))                                                                                 \
  X(cuEventRecord, (Event event, Stream stream))                                                                      \
  X(cuEventSynchronize, (Event event))                                                                                \
  X(cuEventQuery, (Event event))                                                                                      \
  X(cuEventElapsedTime, (float* milliseconds, Event begin, Event end))
