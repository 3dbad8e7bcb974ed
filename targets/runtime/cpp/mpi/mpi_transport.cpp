#include "mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace stablexla {
namespace {

// This thread's last finished run, and how often its results were gathered.
thread_local RunKey last_run;
thread_local std::uint64_t gathers = 0;

std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) {
  seed ^= value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2);
  seed *= 0xff51afd7ed558ccdu;
  return seed ^ (seed >> 33);
}

}  // namespace

MpiTransport::MpiTransport(MpiLibrary library, MpiWorld world)
    : mpi_(std::move(library)), world_(std::move(world)), control_(mpi_, world_.control, world_.rank, world_.pids, world_.crowded) {
  std::vector<int> everybody;
  for (int process = 0; process < world_.size; ++process) everybody.push_back(process);
  communicators_[everybody] = world_.data;
  mpi_.comm_set_errhandler(world_.data, mpi_.errors_return);
  mpi_.comm_set_errhandler(world_.control, mpi_.errors_return);
}

int MpiTransport::tag_of(const Place& place) const {
  std::uint64_t tag = mixed(mixed(place.run.program, place.run.source), place.run.number);
  tag = mixed(mixed(tag, static_cast<std::uint64_t>(place.collective)), place.visit);
  tag = mixed(tag, static_cast<std::uint64_t>(place.group));
  const auto limit = static_cast<std::uint64_t>(mpi_.tag_limit);
  return static_cast<int>(tag % (limit / 2)) * 2;  // a tag for each stage of messages
}

void MpiTransport::refuse(RunKey run, const std::string& why) {
  run.number = control_.begin(run.program);
  failed(run, why);
}

void MpiTransport::failed(RunKey run, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    sent_.remove_if([&](const Sent& sent) { return sent.route.run == run; });
  }
  failed_ = true;
  control_.failed(run, why);
}

// After a while without polls, many messages may be queued before that about a failure.
int MpiTransport::looks() {
  const auto now = Clock::now().time_since_epoch();
  return now - Clock::duration(last_end_.load(std::memory_order_relaxed)) > std::chrono::milliseconds(1) ? 500 : 3;
}

bool MpiTransport::is_good(RunKey run, const MpiMessages& messages, int looks, MpiWait& wait) {
  last_end_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  if (!messages.took_from_senders()) return true;
  std::string trouble = control_.new_trouble(run, looks);
  if (trouble.empty()) return true;
  wait.fail(std::move(trouble));
  return false;
}

const MpiTransport::Plan& MpiTransport::plan_of(RunKey run, const Collective& what, std::size_t group) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Plan>& plan = plans_[{run.program, what.number, group}];
  if (plan != nullptr) return *plan;
  plan = std::make_unique<Plan>();
  const std::vector<int>& devices = what.groups[group];
  std::vector<int>& ranks = plan->group.ranks;
  for (int device : devices) {
    const int rank = rank_of(run, device);
    const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    if (place == plan->group.size()) ranks.push_back(rank);
    const bool is_here = run.where->is_here(device);
    if (is_here) plan->group.me = place;
    (is_here ? plan->here : plan->awaited).push_back(device);
    plan->group.seats.push_back({device, rank, nullptr});
  }
  plan->text = what.text();
  plan->comm = communicators_.at(run.where->ranks);
  return *plan;
}

Failure MpiTransport::run(RunKey run, std::uint64_t visit, const Collective& what, std::size_t group,
                          const std::vector<Member>& local, const Waiting& waiting) {
  const int looks = this->looks();
  const Plan& plan = plan_of(run, what, group);
  MpiGroup members = plan.group;
  auto next = local.begin();
  for (auto& seat : members.seats)
    if (seat.rank == members.rank(members.me)) seat.here = &*next++;
  const Place place{run, what.number, visit, static_cast<int>(group), ""};
  MpiWait wait(control_, place, plan.text, plan.here, plan.awaited, waiting);
  if (wait.is_over()) return wait.failure();
  MpiMessages messages(mpi_, plan.comm, tag_of(place));
  if (!MpiData(what, members, messages, wait).run() || !is_good(run, messages, looks, wait))
    return wait.failure();
  return {};
}

Failure MpiTransport::begin(RunKey& run, const Waiting& waiting) {
  run.number = control_.begin(run.program);
  return communicator(*run.where) != 0 ? Failure{} : meet(run, waiting);
}

Failure MpiTransport::meet(RunKey run, const Waiting& waiting) {
  const std::vector<int>& ranks = run.where->ranks;
  std::unique_lock own(mutex_);
  std::mutex& making = making_[ranks];
  own.unlock();
  std::lock_guard alone(making);
  if (communicator(*run.where) != 0) return {};
  std::uint64_t key = ranks.size();
  for (int process : ranks) key = mixed(key, static_cast<std::uint64_t>(process));
  const std::string text = "the first run of a program";
  MpiWait wait(control_, {run, kBegin, 0, 0, ""}, text, run.where->here, run.where->elsewhere, waiting);
  for (int stage = 0; stage < 2; ++stage) {
    control_.join(ranks, key, stage);
    while (!control_.all_joined(ranks, key, stage)) {
      if (wait.pause()) continue;
      control_.withdraw(ranks, key);
      return wait.failure();
    }
  }
  const int error = make_communicator(ranks, static_cast<int>(key % static_cast<std::uint64_t>(mpi_.tag_limit)));
  if (error == 0) return {};
  wait.fail(mpi_.said(error));
  return wait.failure();
}

int MpiTransport::make_communicator(const std::vector<int>& ranks, int tag) {
  MpiHandle world = 0, group = 0, made = 0;
  int error = mpi_.comm_group(world_.data, &world);
  if (error == 0) error = mpi_.group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
  if (error == 0) error = mpi_.comm_create_group(world_.data, group, tag, &made);
  if (error != 0) return error;
  mpi_.group_free(&group);
  mpi_.group_free(&world);
  mpi_.comm_set_errhandler(made, mpi_.errors_return);
  std::lock_guard lock(mutex_);
  communicators_[ranks] = made;
  return 0;
}

MpiHandle MpiTransport::communicator(const Placement& where) {
  std::lock_guard lock(mutex_);
  const auto found = communicators_.find(where.ranks);
  return found == communicators_.end() ? 0 : found->second;
}

int MpiTransport::rank_of(RunKey run, int device) const {
  const std::vector<int>& ranks = run.where->ranks;
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), run.where->process(device)) - ranks.begin());
}

// Place of a point-to-point message; those between the same two devices are ordered.
Place MpiTransport::route_of(RunKey run, const Collective& what, int source, int target, bool sends) {
  std::lock_guard lock(mutex_);
  const std::uint64_t count = counts_[{run.program, run.number, what.channel, source, target, sends}]++;
  return {run, kMessages, mixed(count, static_cast<std::uint64_t>(what.channel)), source * 65537 + target, ""};
}

void MpiTransport::send(RunKey run, const Collective& what, int source, int target, void** inputs) {
  Sent sent;
  sent.target = target;
  sent.text = what.text();
  sent.number = what.number;
  sent.route = route_of(run, what, source, target, true);
  std::size_t bytes = 0;
  for (const Operand& operand : what.operands) bytes += static_cast<std::size_t>(operand.input_bytes);
  sent.data.resize(bytes);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < what.operands.size(); ++i) {
    std::memcpy(sent.data.data() + begin, inputs[i], static_cast<std::size_t>(what.operands[i].input_bytes));
    begin += static_cast<std::size_t>(what.operands[i].input_bytes);
  }
  sent.messages = std::make_unique<MpiMessages>(mpi_, communicator(*run.where), tag_of(sent.route));
  sent.messages->send_synchronous(rank_of(run, target), sent.data.data(), static_cast<std::int64_t>(bytes));
  std::lock_guard lock(mutex_);
  sent_.push_back(std::move(sent));
}

Failure MpiTransport::receive(RunKey run, const Collective& what, int source, int target, void** outputs,
                              const Waiting& waiting) {
  const int looks = this->looks();
  const Place route = route_of(run, what, source, target, false);
  const std::string text = what.text();
  const std::vector<int> here{target}, awaited{source};
  MpiWait wait(control_, route, text, here, awaited, waiting);
  if (wait.is_over()) return wait.failure();
  MpiMessages messages(mpi_, communicator(*run.where), tag_of(route));
  std::int64_t bytes = 0;
  for (const Operand& operand : what.operands) bytes += operand.output_bytes;
  const bool is_one = what.operands.size() == 1;
  char* room = is_one ? static_cast<char*>(outputs[0]) : messages.room(static_cast<std::size_t>(bytes));
  messages.receive(rank_of(run, source), room, bytes);
  if (!messages.finish(wait) || !is_good(run, messages, looks, wait)) return wait.failure();
  for (std::size_t i = 0; i < what.operands.size() && !is_one; ++i) {
    std::memcpy(outputs[i], room, static_cast<std::size_t>(what.operands[i].output_bytes));
    room += what.operands[i].output_bytes;
  }
  return {};
}

// A send completes when its receiver has matched it.
Failure MpiTransport::end(RunKey run, const Waiting& waiting) {
  std::list<Sent> mine;
  {
    std::lock_guard lock(mutex_);
    for (auto sent = sent_.begin(); sent != sent_.end();) {
      const auto next = std::next(sent);
      if (sent->route.run == run) mine.splice(mine.end(), sent_, sent);
      sent = next;
    }
    if (!counts_.empty()) {
      const auto first = counts_.lower_bound({run.program, run.number, INT64_MIN, INT32_MIN, INT32_MIN, false});
      const auto last = counts_.lower_bound({run.program, run.number + 1, INT64_MIN, INT32_MIN, INT32_MIN, false});
      counts_.erase(first, last);
    }
  }
  for (Sent& sent : mine) {
    const std::vector<int> here, awaited{sent.target};
    MpiWait wait(control_, sent.route, sent.text, here, awaited, waiting);
    if (sent.messages->finish(wait)) continue;
    Failure failure = wait.failure();
    failure.summary = "nobody has received what was sent to device " + std::to_string(sent.target) + ": " +
                      failure.summary;
    failure.number = sent.number;
    failed(run, failure.summary);  // the caller considers the run ended, while the others gather its results
    return failure;
  }
  control_.end(run);
  failed_ = false;
  last_run = run;
  gathers = 0;
  return {};
}

Failure MpiTransport::gather(const Arrays& arrays, const Waiting& waiting) {
  const RunKey run = last_run;
  const std::vector<int>& ranks = run.where->ranks;
  const Place place{run, kGather, ++gathers, 0, ""};
  const std::string text = "gathering of the results";
  MpiWait wait(control_, place, text, run.where->here, run.where->elsewhere, waiting);
  if (wait.is_over()) return wait.failure();
  MpiMessages messages(mpi_, communicator(*run.where), tag_of(place));
  const int size = static_cast<int>(ranks.size()), me = rank_of(run, run.where->here[0]);
  const auto array_of = [](auto array) { return reinterpret_cast<void*>(array.first); };
  for (int rank = 0; rank < size; ++rank)
    for (const auto& array : arrays.at(ranks[static_cast<std::size_t>(rank)]))
      if (rank != me) messages.receive(rank, array_of(array), array.second);
  for (int i = 1; i < size; ++i)
    for (const auto& array : arrays.at(world_.rank)) messages.send((me + i) % size, array_of(array), array.second);
  return messages.finish(wait) ? Failure{} : wait.failure();
}

bool MpiTransport::leave(double seconds, bool failed) {
  Deadline limit = failed || failed_ ? deadline_after(seconds) : Deadline::max();
  control_.leave();
  MpiHandle request = 0;
  int error = 0;
  if (mpi_.ibarrier(world_.data, &request) != 0) return false;
  while (!mpi_.is_done(request, error) || !control_.is_quiet()) {
    if (Clock::now() > limit) return false;
    if (control_.look_for_dead()) limit = std::min(limit, deadline_after(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (auto& [ranks, comm] : communicators_)
    if (comm != world_.data) mpi_.comm_free(&comm);  // in the same order everywhere
  return error == 0;
}

}  // namespace stablexla
