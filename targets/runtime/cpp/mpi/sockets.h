// The functions of MPI that the transport uses, over TCP connections to the other processes.
//
// Messages are matched as MPI matches them: by sender, communicator and tag, in the order in which they were sent.
// Nothing runs in the background: whoever tests a request moves all messages on.
#pragma once

#include <vector>

#include "mpi_library.h"

namespace stablexla {

// Handles of the two communicators of all processes.
constexpr MpiHandle kSocketData = 1, kSocketControl = 2;

// `connections` are sockets by rank, one to each other process; the own one is -1. Once in a process.
MpiLibrary socket_library(int rank, const std::vector<int>& connections);

}  // namespace stablexla
