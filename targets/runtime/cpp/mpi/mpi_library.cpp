#include "mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace stablexla {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("the MPI library has no ") + name);
}

}  // namespace

MpiLibrary::MpiLibrary(const std::string& path, const std::map<std::string, std::int64_t>& constants) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(path + " is not loaded");
#define STABLEXLA_MPI_FUNCTION(name, in_mpi, parameters) find(library, "MPI_" #in_mpi, name);
  STABLEXLA_MPI_FUNCTIONS(STABLEXLA_MPI_FUNCTION)
#undef STABLEXLA_MPI_FUNCTION
  byte = constants.at("BYTE");
  request_null = constants.at("REQUEST_NULL");
  errors_return = constants.at("ERRORS_RETURN");
  any_source = static_cast<int>(constants.at("ANY_SOURCE"));
  tag_limit = static_cast<int>(
      std::min<std::int64_t>(constants.at("TAG_UB"), std::numeric_limits<int>::max()));
}

bool MpiLibrary::is_done(MpiHandle& request, int& error) const {
  if (request == request_null) return true;
  MpiStatus status;
  int flag = 0;
  error = test(&request, &flag, &status);
  if (error == 0 && flag == 0) return false;
  request = request_null;  // implementations with 32-bit handles write the lower half only
  return true;
}

std::string MpiLibrary::said(int error) const {
  char text[2048];  // more than any MPI_MAX_ERROR_STRING
  int length = 0;
  if (error_string(error, text, &length) != 0) return "MPI: error " + std::to_string(error);
  return "MPI: " + std::string(text, static_cast<std::size_t>(length));
}

}  // namespace stablexla
