#include "cpu_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stablexla {
namespace {

// The smaller of two limits, of which 0 is none.
double least(double a, double b) { return a <= 0 ? b : b <= 0 ? a : std::min(a, b); }

// cgroup v2: "max 100000", or quota and period in microseconds.
double limit_of_version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

// cgroup v1: a quota of -1 is unlimited.
double limit_of_version_1(const std::string& folder) {
  double quota = -1, period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The limits of a group's ancestors hold, too.
double limit_along(const std::string& mount, std::string path, double (*limit)(const std::string&)) {
  double found = limit(mount);
  for (; path.size() > 1; path.resize(path.rfind('/'))) found = least(found, limit(mount + path));
  return found;
}

bool lists(const std::string& controllers, const std::string& wanted) {
  std::stringstream all(controllers);
  for (std::string one; std::getline(all, one, ',');)
    if (one == wanted) return true;
  return false;
}

}  // namespace

int cpu_limit(const std::string& groups, const std::string& root) {
  double found = 0;
  std::stringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.empty()) found = least(found, limit_along(root, path, limit_of_version_2));
    if (lists(controllers, "cpu"))
      for (const std::string& mount : {root + "/cpu", root + "/" + controllers})
        found = least(found, limit_along(mount, path, limit_of_version_1));
  }
  return found > 0 ? std::max(1, static_cast<int>(std::ceil(found))) : 0;
}

int cpu_limit() {
  std::ifstream file("/proc/self/cgroup");
  const std::string groups((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return cpu_limit(groups, "/sys/fs/cgroup");
}

}  // namespace stablexla
