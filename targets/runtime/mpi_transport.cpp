#include "mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace stablexla {
namespace {

constexpr std::int64_t kMessages = -1, kGather = -2;  // in the place of a collective's number

// The run that this thread has ended last, and how often its results were gathered.
thread_local RunKey last_run;
thread_local std::uint64_t gathers = 0;

std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) {
  seed ^= value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2);
  seed *= 0xff51afd7ed558ccdu;
  return seed ^ (seed >> 33);
}

Place place_of(RunKey run, const Collective& what, std::uint64_t visit, int group) {
  return {run, what.number, visit, group, what.place.empty() ? what.name : what.name + " " + what.place};
}

std::vector<int> processes_of(const std::vector<int>& devices, int local) {
  std::set<int> processes;
  for (int device : devices) processes.insert(device / local);
  return {processes.begin(), processes.end()};
}

}  // namespace

MpiTransport::MpiTransport(MpiLibrary library, MpiWorld world)
    : mpi_(std::move(library)), world_(std::move(world)), control_(mpi_, world_.control, world_.rank, world_.pids) {
  std::vector<int> everybody;
  for (int process = 0; process < world_.size; ++process) everybody.push_back(process);
  communicators_[everybody] = world_.data;
  mpi_.comm_set_errhandler(world_.data, mpi_.errors_return);
  mpi_.comm_set_errhandler(world_.control, mpi_.errors_return);
}

int MpiTransport::tag_of(const Place& place) const {
  std::uint64_t tag = mixed(place.run.program, place.run.number);
  tag = mixed(mixed(mixed(tag, static_cast<std::uint64_t>(place.collective)), place.visit), static_cast<std::uint64_t>(place.group));
  const auto limit = static_cast<std::uint64_t>(mpi_.tag_limit);
  return static_cast<int>(tag % (limit / 2)) * 2;  // a tag for each stage of messages
}

std::uint64_t MpiTransport::begin(std::uint64_t program, const std::string& name) {
  return control_.begin(program, name);
}

void MpiTransport::failed(RunKey run, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    sent_.remove_if([&](const Sent& sent) { return sent.run.program == run.program && sent.run.number == run.number; });
  }
  failed_ = true;
  control_.failed(run, why);
}

Failure MpiTransport::run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
                          const std::vector<Member>& local, Deadline deadline, const Waiting& waiting) {
  const std::vector<int>& devices = what.groups[group];
  const std::vector<int> processes = processes_of(devices, run.local);
  const auto rank_in_group = [&](int process) {
    return static_cast<int>(std::lower_bound(processes.begin(), processes.end(), process) - processes.begin());
  };
  MpiGroup members;
  members.processes = static_cast<int>(processes.size());
  members.me = rank_in_group(world_.rank);
  std::vector<int> here, awaited;
  auto next = local.begin();
  for (int device : devices) {
    const bool is_here = device / run.local == world_.rank;
    (is_here ? here : awaited).push_back(device);
    members.seats.push_back({device, rank_in_group(device / run.local), is_here ? &*next++ : nullptr});
  }
  const Place place = place_of(run, what, visit, static_cast<int>(group));
  MpiWait wait(mpi_, control_, world_.crowded, place, here, awaited, deadline, waiting);
  const std::string trouble = control_.trouble(run);
  if (!trouble.empty()) {
    wait.fail(trouble);
    return wait.failure();
  }
  MpiHandle comm = 0;
  Failure failure = communicator(processes, wait, comm);
  if (!failure.summary.empty()) return failure;
  MpiMessages messages(mpi_, comm, tag_of(place));
  wait.refresh([&] {
    std::vector<int> heard = messages.heard();
    for (int& process : heard) process = processes[static_cast<std::size_t>(process)];
    return heard;
  });
  if (!MpiData(what, members, messages, wait).run()) return wait.failure();
  return {};
}

// A communicator is made once for each set of processes, when all of them are known to be there: making it cannot be
// given up.
Failure MpiTransport::communicator(const std::vector<int>& processes, MpiWait& wait, MpiHandle& comm) {
  {
    std::lock_guard lock(mutex_);
    const auto known = communicators_.find(processes);
    if (known != communicators_.end()) {
      comm = known->second;
      return {};
    }
  }
  std::uint64_t key = processes.size();
  for (int process : processes) key = mixed(key, static_cast<std::uint64_t>(process));
  for (int stage = 0; stage < 2; ++stage) {
    control_.join(key, stage, processes);
    while (!control_.all_joined(key, stage, processes))
      if (!wait.pause()) return wait.failure();
  }
  MpiHandle world = 0, group = 0, made = 0;
  int error = mpi_.comm_group(world_.data, &world);
  if (error == 0) error = mpi_.group_incl(world, static_cast<int>(processes.size()), processes.data(), &group);
  if (error == 0)
    error = mpi_.comm_create_group(world_.data, group, static_cast<int>(key % static_cast<std::uint64_t>(mpi_.tag_limit)), &made);
  if (error != 0) {
    wait.fail("MPI: " + mpi_.text_of(error));
    return wait.failure();
  }
  mpi_.group_free(&group);
  mpi_.group_free(&world);
  mpi_.comm_set_errhandler(made, mpi_.errors_return);
  std::lock_guard lock(mutex_);
  communicators_[processes] = comm = made;
  return {};
}

std::uint64_t MpiTransport::next_on(RunKey run, const Collective& what, int source, int target, bool sends) {
  std::lock_guard lock(mutex_);
  return counts_[{run.program, run.number, what.channel, source, target, sends}]++;
}

Failure MpiTransport::send(RunKey run, const Collective& what, int source, int target, void** inputs, Deadline,
                           const Waiting&) {
  Sent sent;
  sent.run = run;
  sent.target = target;
  sent.place = place_of(run, what, 0, 0);
  Place route = sent.place;
  route.collective = kMessages;
  route.visit = mixed(next_on(run, what, source, target, true), static_cast<std::uint64_t>(what.channel));
  route.group = source * 65537 + target;
  std::size_t bytes = 0;
  for (const Operand& operand : what.operands) bytes += static_cast<std::size_t>(operand.input_bytes);
  sent.data.resize(bytes);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < what.operands.size(); ++i) {
    std::memcpy(sent.data.data() + begin, inputs[i], static_cast<std::size_t>(what.operands[i].input_bytes));
    begin += static_cast<std::size_t>(what.operands[i].input_bytes);
  }
  sent.messages = std::make_unique<MpiMessages>(mpi_, world_.data, tag_of(route));
  sent.messages->send_synchronous(target / run.local, sent.data.data(), static_cast<std::int64_t>(bytes));
  std::lock_guard lock(mutex_);
  sent_.push_back(std::move(sent));
  return {};
}

Failure MpiTransport::receive(RunKey run, const Collective& what, int source, int target, void** outputs,
                              Deadline deadline, const Waiting& waiting) {
  const Place place = place_of(run, what, 0, 0);
  Place route = place;
  route.collective = kMessages;
  route.visit = mixed(next_on(run, what, source, target, false), static_cast<std::uint64_t>(what.channel));
  route.group = source * 65537 + target;
  MpiWait wait(mpi_, control_, world_.crowded, place, {target}, {source}, deadline, waiting);
  MpiMessages messages(mpi_, world_.data, tag_of(route));
  std::int64_t bytes = 0;
  for (const Operand& operand : what.operands) bytes += operand.output_bytes;
  const bool is_one = what.operands.size() == 1;
  char* room = is_one ? static_cast<char*>(outputs[0]) : messages.room(static_cast<std::size_t>(bytes));
  messages.receive(source / run.local, room, bytes);
  if (!messages.finish(wait)) return wait.failure();
  for (std::size_t i = 0; i < what.operands.size() && !is_one; ++i) {
    std::memcpy(outputs[i], room, static_cast<std::size_t>(what.operands[i].output_bytes));
    room += what.operands[i].output_bytes;
  }
  return {};
}

// A send is over when its receiver has come.
Failure MpiTransport::end(RunKey run, Deadline deadline, const Waiting& waiting) {
  std::list<Sent> mine;
  {
    std::lock_guard lock(mutex_);
    for (auto sent = sent_.begin(); sent != sent_.end();) {
      const auto next = std::next(sent);
      if (sent->run.program == run.program && sent->run.number == run.number) mine.splice(mine.end(), sent_, sent);
      sent = next;
    }
    if (!counts_.empty()) {
      const auto first = counts_.lower_bound({run.program, run.number, INT64_MIN, INT32_MIN, INT32_MIN, false});
      const auto last = counts_.lower_bound({run.program, run.number + 1, INT64_MIN, INT32_MIN, INT32_MIN, false});
      counts_.erase(first, last);
    }
  }
  for (Sent& sent : mine) {
    MpiWait wait(mpi_, control_, world_.crowded, sent.place, {}, {sent.target}, deadline, waiting);
    if (sent.messages->finish(wait)) continue;
    Failure failure = wait.failure();
    failure.summary = "nobody has received what was sent to device " + std::to_string(sent.target) + ": " +
                      failure.summary;
    return failure;
  }
  control_.end(run);
  failed_ = false;
  last_run = run;
  gathers = 0;
  return {};
}

Failure MpiTransport::gather(int local, const std::vector<Array>& own, const std::vector<std::vector<Array>>& others,
                             Deadline deadline, const Waiting& waiting) {
  last_run.local = local;
  std::vector<int> here, awaited;
  for (int device = 0; device < world_.size * local; ++device)
    (device / local == world_.rank ? here : awaited).push_back(device);
  const Place place{last_run, kGather, ++gathers, 0, "gathering of the results"};
  MpiWait wait(mpi_, control_, world_.crowded, place, here, awaited, deadline, waiting);
  MpiMessages messages(mpi_, world_.data, tag_of(place));
  const std::string trouble = control_.trouble(last_run);
  if (!trouble.empty()) {
    wait.fail(trouble);
    return wait.failure();
  }
  for (int process = 0; process < world_.size; ++process)
    for (const Array& array : others[static_cast<std::size_t>(process)])
      messages.receive(process, array.data, array.bytes);
  for (int i = 1; i < world_.size; ++i)
    for (const Array& array : own) messages.send((world_.rank + i) % world_.size, array.data, array.bytes);
  wait.refresh([&] { return messages.heard(); });
  if (!messages.finish(wait)) return wait.failure();
  return {};
}

bool MpiTransport::leave(double seconds, bool failed) {
  const auto in = [](double time) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time));
  };
  Deadline limit = failed || failed_ ? in(seconds) : Deadline::max();
  control_.leave();
  MpiHandle request = 0;
  int error = 0;
  if (mpi_.ibarrier(world_.data, &request) != 0) return false;
  while (!mpi_.is_done(request, error)) {
    if (Clock::now() > limit) return false;
    if (control_.look_for_dead()) limit = std::min(limit, in(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error == 0;
}

}  // namespace stablexla
