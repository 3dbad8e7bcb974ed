#include "device_program.h"

#include <stdexcept>

#include "device_number.h"
#include "device_run.h"
#include "device_threads.h"

namespace stablexla {
namespace {

int own_rank() { return transport() != nullptr ? transport()->rank() : 0; }

}  // namespace

DeviceProgram::DeviceProgram(const std::string& name, const Json::List& configs, int num_devices) {
  if (num_devices < 1) throw std::invalid_argument("a program is for one device or more");
  where_ = &placement_of(std::vector<int>(static_cast<std::size_t>(num_devices), own_rank()), own_rank(), 0);
  collectives.reserve(configs.size());
  for (char c : name) program_ = program_ * 31 + static_cast<unsigned char>(c);
  for (const Json& config : configs) {
    collectives.emplace_back(static_cast<std::int64_t>(collectives.size()), config, num_devices);
    program_ = program_ * 0x100000001B3u ^ collectives.back().hash();
  }
}

DeviceProgram::~DeviceProgram() = default;

void DeviceProgram::place_in(const std::vector<int>& processes, std::uint64_t key) {
  if (processes.size() != where_->processes.size()) throw std::invalid_argument("a process for each device");
  const Placement& where = placement_of(processes, own_rank(), key);
  if (transport() == nullptr && !where.is_whole())
    throw std::invalid_argument("a device in another process, and MPI was not started");
  where_ = &where;
}

void DeviceProgram::refuse(const std::string& why) const {
  Transport* others = where_->is_whole() ? nullptr : transport();
  if (others != nullptr) others->refuse(key(), why);
}

std::unique_ptr<DeviceRun> DeviceProgram::take_run(const Placement& where) const {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& idle : idle_runs_)
      if (&idle->where() == &where) {
        auto found = std::move(idle);
        idle = std::move(idle_runs_.back());
        idle_runs_.pop_back();
        return found;
      }
  }
  return std::make_unique<DeviceRun>(collectives, where);
}

void DeviceProgram::give_back(std::unique_ptr<DeviceRun> run) const {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_runs_.push_back(std::move(run));
}

PlainEnd DeviceProgram::run_plain(const PlainCode& code, std::vector<std::vector<void*>>& buffers, double seconds,
                                  RunControl& control) const {
  DeviceThreads threads(buffers.size() - 1);
  std::unique_ptr<DeviceRun> run = take_run(*where_);
  const bool well = run->execute(threads, control, seconds, key(), [&](std::size_t i) {
    Device& device = run->device(i);
    DeviceScope number(device.number);
    PlainEnd end = stablexla::run_plain(code, buffers[i], control, &device, device.is_caller);
    if (end.why == Ending::kNoMemory) control.stop(end.why);  // where it was the arena's
    if (end.why == Ending::kFailed)
      run->stop(Stop::kRaised, device.number, -1, nullptr, {std::move(end.said), {}, {}});
    else
      run->stop_by_control(device);
    run->finish(device, end.why == Ending::kNone);
  });
  if (well) {
    give_back(std::move(run));
    return {};
  }
  const Stop::Kind kind = run->why().kind;
  if (kind == Stop::kLimits || kind == Stop::kInterrupted) return {control.end().why, ""};
  if (kind == Stop::kRaised)
    return {Ending::kFailed, run->why().said.summary + "\n  on device " + std::to_string(run->why().device)};
  return {Ending::kDevices, run->error_text(code.name)};
}

}  // namespace stablexla
