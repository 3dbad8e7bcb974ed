// Messages between the devices of a run: those within this process, and those to and from others.
#include <sched.h>

#include "device_run.h"

namespace stablexla {

bool DeviceRun::send(Device& device, const Collective& what, void** inputs) {
  for (auto [source, target] : what.pairs) {
    if (source != device.number) continue;
    if (!where_.is_here(target)) {
      transport_->send(key_, what, source, target, inputs);
    } else if (Receiver* receiver = messages_.send(what, {what.channel, source, target}, inputs)) {
      idle_.fetch_sub(1);
      receiver->word.store(Receiver::kThere);
      futex_wake(receiver->word, 1);
    }
    if (is_stopped()) return false;
  }
  return true;
}

bool DeviceRun::receive(Device& device, const Collective& what, void** outputs) {
  for (auto [source, target] : what.pairs) {
    if (target != device.number) continue;
    if (where_.is_here(source)) return receive_here(device, what, {what.channel, source, target}, outputs);
    const std::vector<int> both{source, target};
    Failure said = transport_->receive(key_, what, source, target, outputs, waiting(device));
    if (!said.summary.empty()) stop(Stop::kTransport, device.number, what.number, &both, std::move(said));
    return !is_stopped();
  }
  return true;
}

bool DeviceRun::receive_here(Device& device, const Collective& what, const Route& route, void** outputs) {
  const std::vector<int> both{std::get<1>(route), std::get<2>(route)};
  Receiver receiver{&what, outputs};
  if (!messages_.receive(route, receiver)) {
    device.state.store(Device::kWaiting, std::memory_order_release);
    now_idle(device, what, both);
    if (sleep(device, receiver.word, 0, deadline()) == Slept::kLate)
      stop(Stop::kTimeLimit, device.number, what.number, &both);
    if (is_stopped() && !messages_.withdraw(route, receiver))  // a sender is copying into the outputs
      while ((receiver.word.load() & Receiver::kThere) == 0) sched_yield();
    device.state.store(Device::kRunning, std::memory_order_relaxed);
    if (is_stopped()) return false;
  }
  if (!receiver.fits) stop(Stop::kMismatch, device.number, what.number, &both);
  return !is_stopped();
}

}  // namespace stablexla
