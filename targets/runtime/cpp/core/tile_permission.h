// Permission to use AMX tile registers, which Linux grants to processes on request, for all of their threads; without
// it the first instruction on a tile ends the process.
#pragma once

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stablexla {

// Returns whether tiles may be used; requests them the first time.
inline bool ask_for_tiles() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

}  // namespace stablexla
