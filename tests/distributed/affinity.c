// What makes StableHLO's interpreter run more processes at once than the machine has cores: its pool has a thread for
// each core that this function names, and a process that finds no thread never arrives where the others wait for it.
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

enum { CORES = 16 };

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
  (void)pid;
  memset(set, 0, size);
  for (int core = 0; core < CORES; core++)
    CPU_SET_S(core, size, set);
  return 0;
}
