/* Compiles a StableHLO file, or loads a program that was saved, and runs it, by the PJRT C API:

     cc examples/pjrt/run.c -o run -ldl
     ./run $(python -m stablexla.pjrt --library) examples/mlp_jax.mlir 8x64 ...

   Arguments behind the file are the shapes of the program's f32 parameters; their elements are 0, 1, 2 ... divided by
   their number. A file that ends in .sxe is one of `stablexla-compile`, and takes no Python. One for several devices
   runs on all of them, with the same arguments; STABLEXLA_NUM_DEVICES says how many there are. */
#include "pjrt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARRAYS = 64, MOST_DIMENSIONS = 8, MOST_DEVICES = 64 };

static const PJRT_Api* api;

#define ARGS(type, name) type name = {.struct_size = sizeof name}

/* Calls a function of the table; an error ends the program with its message. */
static void call(int slot, void* args) {
  PJRT_Error* error = api->slots[slot](args);
  if (error == NULL) return;
  ARGS(PJRT_Error_Message_Args, said);
  said.error = error;
  api->slots[PJRT_Error_Message](&said);
  fprintf(stderr, "error: %.*s\n", (int)said.message_size, said.message);
  ARGS(PJRT_Error_Destroy_Args, gone);
  gone.error = error;
  api->slots[PJRT_Error_Destroy](&gone);
  exit(1);
}

static void wait_for(PJRT_Event* event) {
  if (event == NULL) return;
  ARGS(PJRT_Event_Args, args);
  args.event = event;
  call(PJRT_Event_Await, &args);
  call(PJRT_Event_Destroy, &args);
}

static char* contents_of(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
    fprintf(stderr, "error: %s cannot be read\n", path);
    exit(1);
  }
  *size = (size_t)ftell(file);
  rewind(file);
  char* bytes = malloc(*size + 1);
  if (bytes == NULL || fread(bytes, 1, *size, file) != *size) exit(1);
  fclose(file);
  return bytes;
}

static PJRT_LoadedExecutable* load(PJRT_Client* client, const char* path) {
  const char* ending = strrchr(path, '.');
  size_t size;
  char* bytes = contents_of(path, &size);
  PJRT_LoadedExecutable* made;
  if (ending != NULL && strcmp(ending, ".sxe") == 0) {
    ARGS(PJRT_Executable_DeserializeAndLoad_Args, args);
    args.client = client;
    args.serialized_executable = bytes;
    args.serialized_executable_size = size;
    call(PJRT_Executable_DeserializeAndLoad, &args);
    made = args.loaded_executable;
  } else {
    ARGS(PJRT_Program, program);
    program.code = bytes;
    program.code_size = size;
    program.format = "mlir";
    program.format_size = strlen(program.format);
    ARGS(PJRT_Client_Compile_Args, args);
    args.client = client;
    args.program = &program;
    args.compile_options = "";
    call(PJRT_Client_Compile, &args);
    made = args.executable;
  }
  free(bytes);
  return made;
}

static void destroy(PJRT_Buffer* buffer) {
  ARGS(PJRT_Buffer_Destroy_Args, args);
  args.buffer = buffer;
  call(PJRT_Buffer_Destroy, &args);
}

/* An array of a shape such as 2x3; "" is a scalar's. */
static PJRT_Buffer* argument(PJRT_Client* client, PJRT_Device* device, const char* shape) {
  int64_t dims[MOST_DIMENSIONS], count = 1;
  size_t rank = 0;
  for (char* end; *shape != 0 && rank < MOST_DIMENSIONS; shape = *end == 'x' ? end + 1 : end) {
    dims[rank] = strtoll(shape, &end, 10);
    if (end == shape || dims[rank] < 0) {
      fprintf(stderr, "error: no shape, such as 2x3: %s\n", shape);
      exit(1);
    }
    count *= dims[rank++];
  }
  float* data = malloc((size_t)count * sizeof *data + 1);
  for (int64_t i = 0; i < count; ++i) data[i] = (float)i / (float)count;
  ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client;
  args.data = data;
  args.type = PJRT_F32;
  args.dims = dims;
  args.num_dims = rank;
  args.host_buffer_semantics = PJRT_COPIED_DURING_CALL;
  args.device = device;
  call(PJRT_Client_BufferFromHostBuffer, &args);
  wait_for(args.done_with_host_buffer);
  free(data);
  return args.buffer;
}

static void print(size_t number, PJRT_Buffer* buffer) { /* and free it */
  ARGS(PJRT_Buffer_Dimensions_Args, shape);
  shape.buffer = buffer;
  call(PJRT_Buffer_Dimensions, &shape);
  ARGS(PJRT_Buffer_ToHostBuffer_Args, copy);
  copy.src = buffer;
  call(PJRT_Buffer_ToHostBuffer, &copy); /* how many bytes */
  float* data = malloc(copy.dst_size + 1);
  copy.dst = data;
  call(PJRT_Buffer_ToHostBuffer, &copy);
  wait_for(copy.event);
  printf("result %zu: f32[", number);
  for (size_t i = 0; i < shape.num_dims; ++i) printf(i == 0 ? "%lld" : ",%lld", (long long)shape.dims[i]);
  printf("]");
  for (size_t i = 0; i < copy.dst_size / sizeof *data && i < 8; ++i) printf(" %g", data[i]);
  printf("\n");
  free(data);
  destroy(buffer);
}

int main(int count, char** words) {
  if (count < 3 || count - 3 > MOST_ARRAYS) {
    fprintf(stderr, "usage: %s libstablexla_pjrt.so program.mlir|program.sxe [2x3 ...]\n", words[0]);
    return 2;
  }
  void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* (*get)(void) = NULL;
  if (library != NULL) *(void**)&get = dlsym(library, "GetPjrtApi"); /* as POSIX has it */
  if (get == NULL) {
    fprintf(stderr, "error: %s\n", dlerror());
    return 1;
  }
  api = get();

  ARGS(PJRT_Client_Create_Args, client);
  call(PJRT_Client_Create, &client);
  PJRT_LoadedExecutable* program = load(client.client, words[2]);
  ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, devices);
  devices.executable = program;
  call(PJRT_LoadedExecutable_AddressableDevices, &devices);

  ARGS(PJRT_LoadedExecutable_GetExecutable_Args, unloaded);
  unloaded.loaded_executable = program;
  call(PJRT_LoadedExecutable_GetExecutable, &unloaded);
  ARGS(PJRT_Executable_NumOutputs_Args, outputs);
  outputs.executable = unloaded.executable;
  call(PJRT_Executable_NumOutputs, &outputs);
  ARGS(PJRT_Executable_Destroy_Args, executable);
  executable.executable = unloaded.executable;
  call(PJRT_Executable_Destroy, &executable);

  static PJRT_Buffer *arguments[MOST_DEVICES][MOST_ARRAYS], *results[MOST_DEVICES][MOST_ARRAYS];
  PJRT_Buffer* const* lists[MOST_DEVICES];
  PJRT_Buffer** made[MOST_DEVICES];
  const size_t given = (size_t)count - 3, num_devices = devices.num_addressable_devices;
  if (outputs.num_outputs > MOST_ARRAYS || num_devices > MOST_DEVICES) return 1;
  for (size_t d = 0; d < num_devices; ++d) {
    for (size_t i = 0; i < given; ++i)
      arguments[d][i] = argument(client.client, devices.addressable_devices[d], words[3 + i]);
    lists[d] = arguments[d];
    made[d] = results[d];
  }
  ARGS(PJRT_LoadedExecutable_Execute_Args, run);
  run.executable = program;
  run.argument_lists = lists;
  run.num_devices = num_devices;
  run.num_args = given;
  run.output_lists = made;
  call(PJRT_LoadedExecutable_Execute, &run);

  for (size_t d = 0; d < num_devices; ++d) {
    if (num_devices > 1) printf("device %zu\n", d);
    for (size_t i = 0; i < outputs.num_outputs; ++i) print(i, results[d][i]);
    for (size_t i = 0; i < given; ++i) destroy(arguments[d][i]);
  }
  ARGS(PJRT_LoadedExecutable_Destroy_Args, loaded);
  loaded.executable = program;
  call(PJRT_LoadedExecutable_Destroy, &loaded);
  ARGS(PJRT_Client_Destroy_Args, over);
  over.client = client.client;
  call(PJRT_Client_Destroy, &over);
  dlclose(library);
  return 0;
}
