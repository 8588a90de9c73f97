"""The system calls that a container may make: a short table, turned into the engine's form. What is not in it fails.

`create.py` sets it, with the other protections of a container.

Left out on purpose, besides what only an administrator needs: kernel keys (`keyctl`), `bpf`, `userfaultfd`,
`perf_event_open`, `io_uring`, `ptrace`, every way into a new namespace, and every family of sockets but four, so that
AF_ALG (which let containers write to files that they may only read, CVE-2026-31431) and AF_VSOCK are not there.

Only the machine's own architecture is listed: a 32-bit program, whose calls have other numbers, is ended.
"""

from __future__ import annotations

import errno
import platform
import socket
from functools import cache
from typing import Any

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
SOCKET_FAMILIES = (int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_NETLINK))
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
PERSONALITIES = (0x0, 0xFFFFFFFF)  # the ordinary one, and asking which it is

ALLOWED: dict[str, str] = {
    "files": """
        access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
        fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock
        fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr ioctl lchown
        lgetxattr link linkat listxattr llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat
        newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
        readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statx symlink
        symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write
        writev cachestat""",
    "events": """
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
        eventfd2 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch pipe pipe2 poll ppoll pselect6 select
        signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime io_cancel io_destroy io_getevents
        io_pgetevents io_setup io_submit""",
    "memory": """
        brk madvise membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap msync munlock munlockall
        munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease process_vm_readv process_vm_writev
        remap_file_pages map_shadow_stack mseal""",
    "processes": """
        alarm arch_prctl capget capset execve execveat exit exit_group fork getcpu getegid geteuid getgid getgroups
        getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid
        get_robust_list get_thread_area ioprio_get ioprio_set kcmp landlock_add_rule landlock_create_ruleset
        landlock_restrict_self pause pidfd_getfd pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq
        sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
        sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
        setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid
        setrlimit setsid setuid set_robust_list set_thread_area set_tid_address getitimer sysinfo times uname vfork
        wait4 waitid""",
    "signals": """
        kill rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
        rt_tgsigqueueinfo sigaltstack tgkill tkill""",
    "time and chance": """
        clock_getres clock_gettime clock_nanosleep getrandom gettimeofday nanosleep time timer_create timer_delete
        timer_getoverrun timer_gettime timer_settime""",
    "between processes": """
        futex futex_requeue futex_wait futex_waitv futex_wake mq_getsetattr mq_notify mq_open mq_timedreceive
        mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget""",
    "sockets, once made": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg
        sendto setsockopt shutdown""",
}  # fmt: skip


@cache
def profile(machine: str = "") -> dict[str, Any]:
    """The profile of this machine's architecture, in the form that the engine takes. Raises KeyError for others."""
    names = sorted({name for group in ALLOWED.values() for name in group.split()})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": [ARCHITECTURES[machine or platform.machine()]],
        "syscalls": [
            _allow(names),
            # Rules that compare the same argument are alternatives.
            *(_allow(["socket", "socketpair"], _compare(0, "SCMP_CMP_EQ", family)) for family in SOCKET_FAMILIES),
            *(_allow(["personality"], _compare(0, "SCMP_CMP_EQ", which)) for which in PERSONALITIES),
            _allow(["clone"], _compare(0, "SCMP_CMP_MASKED_EQ", NEW_NAMESPACES, 0)),
            # Its flags lie behind a pointer, where no filter can look; C libraries go on with clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
        ],
    }


def is_known_architecture() -> bool:
    """Whether there is a profile for this machine."""
    return platform.machine() in ARCHITECTURES


def _allow(names: list[str], *arguments: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ALLOW"}
    return rule | ({"args": list(arguments)} if arguments else {})


def _compare(index: int, how: str, value: int, other: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": other, "op": how}
