// How much of the machine's processors a control group lets this process have.
#pragma once

#include <string>

namespace stablexla {

// The processors that the limits of a process's control groups come to, rounded up, at least 1; 0 when there is no
// limit. `groups` is what /proc/self/cgroup holds, `root` where the groups' folders are mounted.
int cpu_limit(const std::string& groups, const std::string& root);
int cpu_limit();  // of this process

}  // namespace stablexla
