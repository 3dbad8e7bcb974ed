// Keeping BLAS from using threads of its own while a program calls it from several, or on small matrices, where its
// threads wait for each other longer than they work.
#pragma once

#include <cstdint>

namespace stablexla {

// Functions of the library: int(), and void(int). Without them nothing is done.
void set_blas_functions(std::uintptr_t get_num_threads, std::uintptr_t set_num_threads);

}  // namespace stablexla

extern "C" {
// In pairs: between them the library stays on the calling thread.
__attribute__((visibility("default"))) void stablexla_blas_alone_begin();
__attribute__((visibility("default"))) void stablexla_blas_alone_end();
}
