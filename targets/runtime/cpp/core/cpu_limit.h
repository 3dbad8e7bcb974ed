// CPU limit of this process's control groups (cgroup quotas).
#pragma once

#include <string>

namespace stablexla {

// Returns the CPUs that the quotas of a process's control groups amount to, rounded up, at least 1; 0 when there is no
// limit. `groups` is the content of /proc/self/cgroup, `root` the mount point of the groups' folders.
int cpu_limit(const std::string& groups, const std::string& root);
int cpu_limit();  // of this process

}  // namespace stablexla
