#include "async_copies.h"
#include "decode.h"
#include "warpgroup.h"
namespace simulator {
void add_atomics(Table&) {}
void add_products(Table&) {}
void add_async_copies(Table&) {}
void add_mbarriers(Table&) {}
void add_warpgroup(Table&) {}
void finish_copies(Warp&) {}
void finish_products(Warp&) {}
}
