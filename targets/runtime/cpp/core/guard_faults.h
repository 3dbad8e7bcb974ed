// Accesses that the processor refuses while a run is under guard: they end the run, as stopping it does.
#pragma once

namespace stablexla {

void watch_for_faults();  // from now on, in this process

}  // namespace stablexla
