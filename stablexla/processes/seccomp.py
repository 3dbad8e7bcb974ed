"""Filters of system calls: classic BPF programs, assembled here and handed to the kernel by `prctl`.

A program in a sandbox calculates: it needs memory, threads and the socket that it already has. `RUN` lists what that
takes, and refuses the rest; `READ` and `COMPILE` are for MLIR, which may call whatever does not leave the process.
What no honest program does ends the process in `RUN`. The numbers are those of x86-64; on other machines there is no
filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

# ---- the kernel's numbers --------------------------------------------------------------------------------------------


_SECCOMP, _SET_FILTER, _ALL_THREADS = 317, 1, 1  # the system call seccomp, its operation, its flag
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_X86_64, _OF_X32 = 0xC000003E, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

SYSTEM_CALLS = {
    name: number
    for names in (
        "read:0 write:1 open:2 close:3 stat:4 fstat:5 lstat:6 poll:7 lseek:8 mmap:9 mprotect:10 munmap:11 brk:12 "
        "rt_sigaction:13 rt_sigprocmask:14 rt_sigreturn:15 ioctl:16 pread64:17 readv:19 writev:20 access:21 "
        "sched_yield:24 mremap:25 madvise:28 shmget:29 shmat:30 nanosleep:35 setitimer:38 alarm:37 getpid:39 "
        "socket:41 connect:42 accept:43 sendto:44 recvfrom:45 shutdown:48 bind:49 listen:50 getsockname:51 "
        "getpeername:52 socketpair:53 getsockopt:55 clone:56 fork:57 vfork:58 execve:59 exit:60 kill:62 uname:63 "
        "semget:64 msgget:68 fcntl:72 truncate:76 ftruncate:77 getcwd:79 rename:82 mkdir:83 rmdir:84 creat:85 "
        "link:86 unlink:87 symlink:88 readlink:89 chmod:90 fchmod:91 chown:92 fchown:93 lchown:94 getrlimit:97 "
        "getrusage:98 sysinfo:99 ptrace:101 getuid:102 getgid:104 setuid:105 setgid:106 geteuid:107 getegid:108 "
        "setreuid:113 setregid:114 setgroups:116 setresuid:117 setresgid:119 sigaltstack:131 mknod:133 "
        "personality:135 prctl:157 arch_prctl:158 setrlimit:160 chroot:161 acct:163 settimeofday:164 mount:165 "
        "umount2:166 swapon:167 swapoff:168 reboot:169 sethostname:170 setdomainname:171 iopl:172 ioperm:173 "
        "init_module:175 delete_module:176 quotactl:179 gettid:186 setxattr:188 lsetxattr:189 fsetxattr:190 "
        "tkill:200 time:201 futex:202 sched_setaffinity:203 sched_getaffinity:204 io_setup:206 getdents64:217 "
        "set_tid_address:218 restart_syscall:219 clock_settime:227 clock_gettime:228 clock_getres:229 "
        "clock_nanosleep:230 exit_group:231 tgkill:234 utimes:235 mbind:237 mq_open:240 kexec_load:246 "
        "add_key:248 request_key:249 keyctl:250 openat:257 mkdirat:258 mknodat:259 fchownat:260 futimesat:261 "
        "newfstatat:262 unlinkat:263 renameat:264 linkat:265 symlinkat:266 readlinkat:267 fchmodat:268 "
        "faccessat:269 ppoll:271 unshare:272 set_robust_list:273 utimensat:280 accept4:288 pipe2:293 "
        "rt_tgsigqueueinfo:297 rt_sigqueueinfo:129 perf_event_open:298 fanotify_init:300 prlimit64:302 "
        "open_by_handle_at:304 clock_adjtime:305 setns:308 getcpu:309 process_vm_readv:310 process_vm_writev:311 "
        "kcmp:312 finit_module:313 renameat2:316 seccomp:317 getrandom:318 memfd_create:319 kexec_file_load:320 "
        "bpf:321 execveat:322 userfaultfd:323 membarrier:324 statx:332 rseq:334 pidfd_send_signal:424 "
        "io_uring_setup:425 open_tree:428 move_mount:429 fsopen:430 fsmount:432 pidfd_open:434 clone3:435 "
        "openat2:437 pidfd_getfd:438 faccessat2:439 process_madvise:440 mount_setattr:442 fchmodat2:452 utime:132 "
        "removexattr:197 lremovexattr:198 fremovexattr:199 setxattrat:463 removexattrat:466 file_setattr:469 shmctl:31 "
        "shmdt:67 semop:65 semctl:66 semtimedop:220 msgsnd:69 msgrcv:70 msgctl:71 mq_unlink:241 setpriority:141 "
        "sched_setparam:142 sched_setscheduler:144 sched_setattr:314 ioprio_set:251 migrate_pages:256 move_pages:279 "
        "fsconfig:431 fspick:433",
    )
    for name, number in ((each.split(":")[0], int(each.split(":")[1])) for each in names.split())
}

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0x400000  # O_TMPFILE's own bit
_CLONE_THREAD, _SHARED_ANONYMOUS = 0x10000, 0x21
_OWNERS = (4, 8, 10, 15)  # F_SETFL, F_SETOWN, F_SETSIG, F_SETOWN_EX: which signals the kernel sends for a file
_TERMINAL = (0x5401, 0x5421, 0x5450, 0x5451)  # TCGETS, FIONBIO, FIONCLEX, FIOCLEX
_NAMES = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA

# ---- the assembler ---------------------------------------------------------------------------------------------------

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, how many to skip if true, how many if false, and the operand."""


def _result(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def error(number: int) -> int:
    """Return the action of a system call that fails."""
    return _ERROR | number


def calls(names: str, action: int = _ALLOW) -> list[Instruction]:
    """Return the rule for some system calls, whatever their arguments are."""
    found: list[Instruction] = []
    for name in names.split():
        found += [(_EQUAL, 0, 1, SYSTEM_CALLS[name]), _result(action)]
    return found


def call_if(name: str, argument: int, test: Iterable[Instruction], otherwise: int) -> list[Instruction]:
    """Return the rule for a system call that is allowed where its argument passes the test.

    Args:
        name: of the call.
        argument: its number.
        test: instructions on the argument's lower half, the last of which may skip one: the refusal.
        otherwise: the action where it does not.
    """
    body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *test, _result(otherwise), _result(_ALLOW)]
    return [(_EQUAL, 0, len(body), SYSTEM_CALLS[name]), *body]


def _is(*values: int) -> list[Instruction]:
    """Pass where the argument is one of the values."""
    last = len(values) - 1
    return [(_EQUAL, last - i + 1, 0, value) for i, value in enumerate(values)]


def _is_not(*values: int) -> list[Instruction]:
    """Pass where the argument is none of the values."""
    last = len(values) - 1
    return [(_EQUAL, last - i, 0 if i < last else 1, value) for i, value in enumerate(values)]


def _has_none(bits: int) -> list[Instruction]:
    """Pass where the argument has none of the bits."""
    return [(_ANY_OF, 0, 1, bits)]


def _has_not_all(bits: int) -> list[Instruction]:
    return [(_AND, 0, 0, bits), (_EQUAL, 0, 1, bits)]


def _has(bit: int) -> list[Instruction]:
    return [(_ANY_OF, 1, 0, bit)]


def program(rules: Sequence[Instruction], otherwise: int) -> bytes:
    """Return a filter: the first rule for a call decides."""
    head = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _X86_64),
        _result(_KILL),  # the calls of 32 bits have other numbers
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _OF_X32),
        _result(_KILL),
    ]
    return b"".join(struct.pack("<HBBI", *each) for each in (*head, *rules, _result(otherwise)))


# ---- what is allowed -------------------------------------------------------------------------------------------------

_OUTWARD = (
    "execve execveat fork vfork ptrace process_vm_readv process_vm_writev kcmp pidfd_open pidfd_getfd "
    "pidfd_send_signal socket connect accept accept4 bind listen socketpair mount umount2 move_mount open_tree "
    "fsopen fsmount mount_setattr chroot setns unshare bpf perf_event_open userfaultfd io_uring_setup io_setup "
    "keyctl add_key request_key init_module finit_module delete_module kexec_load kexec_file_load reboot swapon "
    "swapoff sethostname setdomainname iopl ioperm acct quotactl settimeofday clock_settime clock_adjtime "
    "setuid setgid setreuid setregid setresuid setresgid setgroups open_by_handle_at fanotify_init personality "
    "process_madvise rt_sigqueueinfo rt_tgsigqueueinfo shmget semget msgget mq_open"
)
"""System calls on other processes, the network and the kernel itself, of which nothing here needs any."""
_CHANGING = (
    "creat truncate rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat "
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat mknod mknodat utimes futimesat utimensat "
    "setxattr lsetxattr fsetxattr utime removexattr lremovexattr fremovexattr setxattrat removexattrat file_setattr"
)
"""System calls that change files by their names."""
_OF_OTHERS = (
    "shmat shmctl shmdt semop semctl semtimedop msgsnd msgrcv msgctl mq_unlink setpriority sched_setparam "
    "sched_setscheduler sched_setattr ioprio_set migrate_pages move_pages fsconfig fspick"
)
"""System calls on shared memory, message queues and scheduling, which a user's pass may need."""
_CALCULATING = (
    "read write fstat lseek mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 readv writev "
    "sched_yield mremap madvise nanosleep getpid sendto recvfrom getsockopt getsockname getpeername exit uname "
    "getrlimit getrusage sysinfo getuid getgid geteuid getegid sigaltstack arch_prctl gettid time futex "
    "sched_getaffinity set_tid_address restart_syscall clock_gettime clock_getres clock_nanosleep exit_group "
    "mbind poll ppoll set_robust_list getcpu getrandom membarrier rseq getcwd"
)
"""Memory, threads, clocks, and the files that are open."""


def _own_signals(refused: int) -> list[Instruction]:
    """Signals to this process alone, also by way of files."""
    own = _is(os.getpid())
    return [
        *call_if("kill", 0, own, refused),
        *call_if("tgkill", 0, own, refused),
        *calls("tkill", refused),
        *call_if("fcntl", 1, _is_not(*_OWNERS), refused),
    ]


def _threads_alone(refused: int) -> list[Instruction]:
    """New threads and no processes; glibc uses `clone` where `clone3`, whose flags no filter can read, is not there."""
    return [*calls("clone3", error(errno.ENOSYS)), *call_if("clone", 0, _has(_CLONE_THREAD), refused)]


def compile_filter() -> bytes:
    """Return the filter of processes that read or compile: files can be read, nothing can be written or started."""
    refused = error(errno.EACCES)
    rules = [
        *calls(_OUTWARD, error(errno.EPERM)),
        *calls(_CHANGING, refused),
        *calls("openat2", error(errno.ENOSYS)),
        *call_if("open", 1, _has_none(_WRITES), refused),
        *call_if("openat", 2, _has_none(_WRITES), refused),
        *_own_signals(error(errno.EPERM)),
        *_threads_alone(error(errno.EPERM)),
        *calls(_OF_OTHERS, error(errno.EPERM)),
        *call_if("prlimit64", 0, _is(0, os.getpid()), error(errno.EPERM)),
        *call_if("sched_setaffinity", 0, _is(0, os.getpid()), error(errno.EPERM)),
        *call_if("ioctl", 1, _is(*_TERMINAL), error(errno.EPERM)),
    ]
    return program(rules, _ALLOW)


def run_filter(lifeline: int) -> bytes:
    """Return the filter of a process that runs machine code of strangers: nothing can be opened any more.

    Args:
        lifeline: the file by which it ends with the process that started it, and which it must not close.
    """
    refused = error(errno.EPERM)
    rules = [
        *calls(_CALCULATING),
        *call_if("close", 0, _is_not(lifeline), refused),
        *call_if("mmap", 3, _has_not_all(_SHARED_ANONYMOUS), refused),  # it would count for no limit of memory
        *_own_signals(_KILL),
        *_threads_alone(_KILL),
        *call_if("prctl", 0, _is(*_NAMES), refused),
        *call_if("ioctl", 1, _is(*_TERMINAL), refused),
        *calls(_OUTWARD, _KILL),
        *calls(_CHANGING, _KILL),
    ]
    return program(rules, refused)


def harmless_filter() -> bytes:
    """Return the filter of processes that run passes of the user's: without what no compiler needs."""
    needed = set("execve execveat fork vfork socket connect accept accept4 bind listen socketpair".split())  # noqa: SIM905
    return program(calls(" ".join(n for n in _OUTWARD.split() if n not in needed), error(errno.EPERM)), _ALLOW)


# ---- the kernel ------------------------------------------------------------------------------------------------------


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def apply(filter_: bytes) -> bool:
    """Apply a filter to all threads of this process, for good; False where there is none for it.

    It must have given up new privileges.
    """
    if platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    given = _Program(len(filter_) // 8, filter_)
    done: int = libc.syscall(_SECCOMP, _SET_FILTER, _ALL_THREADS, ctypes.byref(given))
    return done == 0
