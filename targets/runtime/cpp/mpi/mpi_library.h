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

struct MpiLibrary {
  // `path` is of the library, which is loaded already; `constants` are handles and numbers by MPI's names. Throws
  // std::runtime_error where a function is missing.
  MpiLibrary(const std::string& path, const std::map<std::string, std::int64_t>& constants);

  int (*isend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*);
  int (*issend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*);
  int (*irecv)(void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*);
  int (*mrecv)(void*, int, MpiHandle, MpiHandle*, void*);
  int (*test)(MpiHandle*, int*, void*);
  int (*cancel)(MpiHandle*);
  int (*request_free)(MpiHandle*);
  int (*improbe)(int, int, MpiHandle, int*, MpiHandle*, void*);
  int (*ibarrier)(MpiHandle, MpiHandle*);
  int (*comm_group)(MpiHandle, MpiHandle*);
  int (*group_incl)(MpiHandle, int, const int*, MpiHandle*);
  int (*group_free)(MpiHandle*);
  int (*comm_create_group)(MpiHandle, MpiHandle, int, MpiHandle*);
  int (*comm_free)(MpiHandle*);
  int (*comm_set_errhandler)(MpiHandle, MpiHandle);
  int (*error_string)(int, char*, int*);

  MpiHandle byte, request_null, errors_return;
  int any_source, tag_limit;

  // Whether the request is done, which is then MPI_REQUEST_NULL; `error` is MPI's number where it failed.
  bool is_done(MpiHandle& request, int& error) const;
  std::string said(int error) const;  // what MPI says of it
};

}  // namespace stablexla
