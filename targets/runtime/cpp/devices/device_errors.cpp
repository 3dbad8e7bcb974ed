// Why a run of several devices ended before its time, in words: for Python's CollectiveError, and for errors of PJRT.
#include <algorithm>
#include <cstdio>

#include "device_run.h"

namespace stablexla {
namespace {

std::string summary_of(const Stop& why, const Collective* what, double seconds) {
  const std::string channel =
      what != nullptr && what->is_message() ? ", on channel " + std::to_string(what->channel) : "";
  const auto device = [](int number) { return "device " + std::to_string(number); };
  switch (why.kind) {
    case Stop::kDeadlock: return "devices wait for others which do not come any more" + channel;
    case Stop::kTimeLimit: {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g", seconds);
      return device(why.device) + " has waited for " + limit + " s" + channel;
    }
    case Stop::kOuter: return "stopped, because the run of several devices that it was called from has stopped";
    case Stop::kMismatch:
      return device(why.group[0]) + " sent other arrays than " + device(why.group[1]) + " receives" + channel;
    case Stop::kUnreceived: {
      const auto [number, source, target] = why.unreceived[0].route;
      const std::size_t others = why.unreceived.size() - 1;
      const std::string more = others > 0 ? ", nor " + std::to_string(others) + " others" : "";
      return "what " + device(source) + " sent to " + device(target) + " was never received" + more + channel;
    }
    case Stop::kTransport: return why.said.summary;
    default: return why.text();
  }
}

std::string place_of(const Stop::Where& device, const Collectives& collectives) {
  constexpr const char* states[] = {"runs", "waits", "has finished", "has failed"};
  const std::string state = states[device.state];
  if (device.at < 0) return device.state == Device::kRunning ? "has come to no collective yet" : state;
  const std::string at = "at " + collectives[static_cast<std::size_t>(device.at)].text();
  return state + (device.state == Device::kWaiting ? " " : ", last seen ") + at;
}

std::string list_of(const std::vector<int>& devices) {
  std::string text = devices.size() == 1 ? "device" : "devices";
  for (std::size_t i = 0; i < devices.size(); ++i) text += (i == 0 ? " " : ", ") + std::to_string(devices[i]);
  return devices.empty() ? "nobody" : text;
}

}  // namespace

Failure DeviceRun::explained() const {
  const Collective* what = why_.number < 0 ? nullptr : &collectives_[static_cast<std::size_t>(why_.number)];
  Failure made = why_.said;
  made.summary = summary_of(why_, what, seconds_);
  if (why_.kind != Stop::kDeadlock && why_.kind != Stop::kTimeLimit) return made;
  for (std::size_t i = 0; i < why_.group.size(); ++i) {
    const int device = why_.group[i];
    const auto found = std::find_if(why_.devices.begin(), why_.devices.end(),
                                    [&](const Stop::Where& each) { return each.device == device; });
    const bool is_here = found != why_.devices.end();
    const bool is_sender = what != nullptr && what->op == Op::kRecv && i == 0;  // it does not wait
    if (is_here && !is_sender && found->state == Device::kWaiting && found->at == why_.number)
      made.arrived.push_back(device);
    else
      made.missing[device] = is_here ? place_of(*found, collectives_) : "is in another process";
  }
  return made;
}

std::string DeviceRun::error_text(const std::string& program) const {
  const Collective* what = why_.number < 0 ? nullptr : &collectives_[static_cast<std::size_t>(why_.number)];
  const Failure said = explained();
  std::string text = (what != nullptr ? what->name + ": " : "") + program + ": " + said.summary;
  if (what != nullptr && what->place.find_first_not_of(" \n") != std::string::npos)
    text += "\n  " + what->place.substr(what->place.find_first_not_of(" \n"));
  if (!why_.group.empty()) text += "\n  group     " + list_of(why_.group) + "\n  arrived   " + list_of(said.arrived);
  for (const auto& [device, where] : said.missing) text += "\n  device " + std::to_string(device) + "  " + where;
  return text;
}

}  // namespace stablexla
