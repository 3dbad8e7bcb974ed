// A molecular dynamics program in C++ whose potential is a function of JAX, as `jax.export` wrote it:
//
//   python examples/pjrt/make_potential.py potential.bin
//   c++ -std=c++17 examples/pjrt/particles.cpp -o particles -ldl
//   ./particles $(python -m stablexla.pjrt --library) potential.bin 1000
//
// The program gives positions f32[64,3], which the plugin reads where they lie (CreateViewOfDeviceBuffer), and gets the
// energy and the forces, whose memory it reads (UnsafePointer); steps are velocity Verlet's.
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include "pjrt.h"
}

namespace {

constexpr std::int64_t kParticles = 64;
constexpr float kStep = 0.002f;
using Vectors = std::vector<float>;  // three numbers a particle

class Plugin {
 public:
  explicit Plugin(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* get = library != nullptr ? dlsym(library, "GetPjrtApi") : nullptr;
    if (get == nullptr) throw std::runtime_error(dlerror());
    table_ = reinterpret_cast<const PJRT_Api* (*)()>(get)();
    client_ = call<PJRT_Client_Create_Args>(PJRT_Client_Create).client;
    PJRT_Client_AddressableDevices_Args devices{};
    devices.client = client_;
    device_ = call(PJRT_Client_AddressableDevices, devices).addressable_devices[0];
  }

  template <typename Args>
  Args& call(int slot, Args& args) const {
    args.struct_size = sizeof args;
    if (PJRT_Error* error = table_->slots[slot](&args)) {
      PJRT_Error_Message_Args said{};
      said.struct_size = sizeof said;
      said.error = error;
      table_->slots[PJRT_Error_Message](&said);
      const std::string message(said.message, said.message_size);
      PJRT_Error_Destroy_Args gone{sizeof gone, nullptr, error};
      table_->slots[PJRT_Error_Destroy](&gone);
      throw std::runtime_error(message);
    }
    return args;
  }

  template <typename Args>
  Args call(int slot) const {
    Args args{};
    return call(slot, args);
  }

  PJRT_LoadedExecutable* compile(const std::string& code) const {
    PJRT_Program program{sizeof program, nullptr, const_cast<char*>(code.data()), code.size(), "mlir", 4};
    PJRT_Client_Compile_Args args{};
    args.client = client_;
    args.program = &program;
    args.compile_options = "";
    return call(PJRT_Client_Compile, args).executable;
  }

  // An array of the host's memory, which stays as it is while the array is there.
  PJRT_Buffer* view(float* data, const std::int64_t* dims, std::size_t rank) const {
    PJRT_Client_CreateViewOfDeviceBuffer_Args args{};
    args.client = client_;
    args.device_buffer_ptr = data;
    args.dims = dims;
    args.num_dims = rank;
    args.element_type = PJRT_F32;
    args.device = device_;
    return call(PJRT_Client_CreateViewOfDeviceBuffer, args).buffer;
  }

  const float* address(PJRT_Buffer* buffer) const {
    PJRT_Buffer_UnsafePointer_Args args{};
    args.buffer = buffer;
    return reinterpret_cast<const float*>(call(PJRT_Buffer_UnsafePointer, args).buffer_pointer);
  }

  void destroy(PJRT_Buffer* buffer) const {
    PJRT_Buffer_Destroy_Args args{};
    args.buffer = buffer;
    call(PJRT_Buffer_Destroy, args);
  }

 private:
  const PJRT_Api* table_;
  PJRT_Client* client_;
  PJRT_Device* device_;
};

class Potential {
 public:
  Potential(const Plugin& plugin, const std::string& code) : plugin_(plugin), program_(plugin.compile(code)) {}

  // Returns the energy; forces go to `forces`.
  float operator()(Vectors& positions, Vectors& forces) const {
    constexpr std::int64_t dims[] = {kParticles, 3};
    PJRT_Buffer* argument = plugin_.view(positions.data(), dims, 2);
    PJRT_Buffer* const arguments[] = {argument};
    PJRT_Buffer* results[2];
    PJRT_Buffer* const* const given[] = {arguments};
    PJRT_Buffer** const made[] = {results};
    PJRT_LoadedExecutable_Execute_Args args{};
    args.executable = program_;
    args.argument_lists = given;
    args.num_devices = 1;
    args.num_args = 1;
    args.output_lists = made;
    plugin_.call(PJRT_LoadedExecutable_Execute, args);
    const float energy = *plugin_.address(results[0]);  // waits for the run
    std::memcpy(forces.data(), plugin_.address(results[1]), forces.size() * sizeof(float));
    for (PJRT_Buffer* each : {argument, results[0], results[1]}) plugin_.destroy(each);
    return energy;
  }

 private:
  const Plugin& plugin_;
  PJRT_LoadedExecutable* program_;
};

// A cube of particles at the distance where two of them have no force, some of them moved.
Vectors start() {
  Vectors positions;
  for (int i = 0; i < kParticles; ++i)
    for (int place : {i % 4, i / 4 % 4, i / 16}) positions.push_back(1.1225f * static_cast<float>(place));
  for (std::size_t i = 0; i < positions.size(); i += 7) positions[i] += 0.05f;
  return positions;
}

float kinetic_energy(const Vectors& velocities) {
  double sum = 0;
  for (float each : velocities) sum += 0.5 * each * each;
  return static_cast<float>(sum);
}

void simulate(const Potential& potential, int steps) {
  Vectors positions = start(), velocities(positions.size()), forces(positions.size());
  float energy = potential(positions, forces);
  for (int step = 0; step <= steps; ++step) {
    if (step % (steps / 5 > 0 ? steps / 5 : 1) == 0)
      std::printf("step %5d  potential %10.4f  total %10.4f\n", step, energy, energy + kinetic_energy(velocities));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      velocities[i] += 0.5f * kStep * forces[i];
      positions[i] += kStep * velocities[i];
    }
    energy = potential(positions, forces);
    for (std::size_t i = 0; i < positions.size(); ++i) velocities[i] += 0.5f * kStep * forces[i];
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s libstablexla_pjrt.so potential.bin STEPS\n", words[0]);
    return 2;
  }
  try {
    std::ifstream file(words[2], std::ios::binary);
    if (!file) throw std::runtime_error(std::string(words[2]) + " cannot be read");
    const std::string code{std::istreambuf_iterator<char>(file), {}};
    const Plugin plugin(words[1]);
    simulate(Potential(plugin, code), std::atoi(words[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
