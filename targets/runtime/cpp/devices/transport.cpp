#include "transport.h"

namespace stablexla {
namespace {

std::atomic<Transport*> the_transport{nullptr};

}  // namespace

Transport* transport() { return the_transport.load(std::memory_order_acquire); }
void set_transport(Transport* transport) { the_transport.store(transport, std::memory_order_release); }

}  // namespace stablexla
