// The functions of the MPI library that mpi4py has loaded. No header of MPI is needed: handles go as 64-bit integers,
// which fit MPICH's 32-bit numbers and Open MPI's addresses alike, and sizes stay below those where the two differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace stablexla {

using MpiHandle = std::int64_t;

// Space for any implementation's MPI_Status; it is not read.
struct MpiStatus {
  alignas(16) char room[128];
};

// Each function's name here, its name after MPI_, and its parameters.
#define STABLEXLA_MPI_FUNCTIONS(F)                                                     \
  F(isend, Isend, (const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*))      \
  F(issend, Issend, (const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*))    \
  F(irecv, Irecv, (void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*))            \
  F(mrecv, Mrecv, (void*, int, MpiHandle, MpiHandle*, void*))                          \
  F(test, Test, (MpiHandle*, int*, void*))                                             \
  F(cancel, Cancel, (MpiHandle*))                                                      \
  F(request_free, Request_free, (MpiHandle*))                                          \
  F(improbe, Improbe, (int, int, MpiHandle, int*, MpiHandle*, void*))                  \
  F(ibarrier, Ibarrier, (MpiHandle, MpiHandle*))                                       \
  F(comm_group, Comm_group, (MpiHandle, MpiHandle*))                                   \
  F(group_incl, Group_incl, (MpiHandle, int, const int*, MpiHandle*))                  \
  F(group_free, Group_free, (MpiHandle*))                                              \
  F(comm_create_group, Comm_create_group, (MpiHandle, MpiHandle, int, MpiHandle*))     \
  F(comm_free, Comm_free, (MpiHandle*))                                                \
  F(comm_set_errhandler, Comm_set_errhandler, (MpiHandle, MpiHandle))                  \
  F(error_string, Error_string, (int, char*, int*))

struct MpiLibrary {
  // `path` is of the library, which is loaded already; `constants` are handles and numbers by MPI's names. Throws
  // std::runtime_error where a function is missing.
  MpiLibrary(const std::string& path, const std::map<std::string, std::int64_t>& constants);

#define STABLEXLA_MPI_FUNCTION(name, in_mpi, parameters) int(*name) parameters;
  STABLEXLA_MPI_FUNCTIONS(STABLEXLA_MPI_FUNCTION)
#undef STABLEXLA_MPI_FUNCTION

  MpiHandle byte, request_null, errors_return;
  int any_source, tag_limit;

  // Whether the request is done, which is then MPI_REQUEST_NULL; `error` is MPI's number where it failed.
  bool is_done(MpiHandle& request, int& error) const;
  std::string said(int error) const;  // what MPI says of it
};

}  // namespace stablexla
