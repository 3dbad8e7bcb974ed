// Keeps BLAS on the calling thread while a program calls it from several threads, or on small matrices, where its
// threads would synchronize for longer than they compute.
#pragma once

#include <cstdint>

namespace stablexla {

// Functions of the library: int(), and void(int). Without them calls have no effect.
void set_blas_functions(std::uintptr_t get_num_threads, std::uintptr_t set_num_threads);

}  // namespace stablexla

extern "C" {
// In pairs: between them the library stays on the calling thread.
__attribute__((visibility("default"))) void stablexla_blas_alone_begin();
__attribute__((visibility("default"))) void stablexla_blas_alone_end();
}
