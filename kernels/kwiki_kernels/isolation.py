"""Takes from a process what a kernel does not need: network, foreign files, reach into other processes.

Unprivileged and for good: what is taken cannot be had back by this process or its children. Each
level is switched on its own, and where the kernel does not offer one, the note says so. Must run
while the process has one thread; `docs/security.md` tells what each level stops and what it does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

Level = Literal["files", "network", "syscalls"]
ALL: tuple[Level, ...] = ("files", "network", "syscalls")
PROVEN_WITH_CUDA: tuple[Level, ...] = ("files", "network", "syscalls")
"""Levels under which candidates in CuTe-DSL and Triton were seen to work, alone and together: on an NVIDIA
H200 with driver 580.159.04 and Landlock 7, 30 November 2026, by `test_cuda_works_under_isolation`."""
PROVEN_WITH_LIBRARIES: tuple[Level, ...] = ("syscalls",)
"""Levels for a task's own baselines, cuBLAS and torch.compile among them; seen to work there. Under `files`
torch.compile failed, for want of the user's name; since a child is given one, `test_isolation_gpu.py` has to
show all levels again."""

FILE_LIMIT_BYTES = 1 << 30
OPEN_FILES = 4096

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
ALL_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock's version to the rights on files that it knows; later versions add none."""
DEVICE_RIGHTS = READ_FILE | WRITE_FILE | 1 << 15
NOT_ON_FILES = ~(EXECUTE | READ_FILE | WRITE_FILE | 1 << 14 | 1 << 15)
SCOPE_SOCKETS_AND_SIGNALS = 3

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sys")
PROC = (
    "/proc/self", "/proc/driver", "/proc/sys", "/proc/cpuinfo", "/proc/devices", "/proc/filesystems",
    "/proc/meminfo", "/proc/modules", "/proc/stat", "/proc/version",
)  # fmt: skip
"""Not all of it: the keeper's environment, tokens and all, stands under its own number there."""
ETC = ("/etc/alternatives", "/etc/ld.so.*", "/etc/localtime", "/etc/nvidia*")
DEVICES = ("/dev/full", "/dev/null", "/dev/nvidia*", "/dev/random", "/dev/urandom", "/dev/zero")

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
X32_BIT = 0x40000000
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SYSCALLS: dict[Level, dict[str, dict[str, int]]] = {
    "network": {
        "x86_64": {"socket": 41, "io_uring_setup": 425},
        "aarch64": {"socket": 198, "io_uring_setup": 425},
    },
    "syscalls": {
        "x86_64": {
            "ptrace": 101, "setpgid": 109, "setsid": 112, "mount": 165, "init_module": 175, "kexec_load": 246,
            "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
            "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "bpf": 321,
            "userfaultfd": 323, "pidfd_getfd": 438, "process_madvise": 440,
        },
        "aarch64": {
            "unshare": 97, "kexec_load": 104, "init_module": 105, "ptrace": 117, "setpgid": 154,
            "setsid": 157, "keyctl": 219, "mount": 40, "perf_event_open": 241, "open_by_handle_at": 265,
            "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273,
            "bpf": 280, "userfaultfd": 282, "pidfd_getfd": 438, "process_madvise": 440,
        },
    },
}  # fmt: skip
"""What answers 'permission denied': ways to a network, into other processes and out of the process group."""

libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


def isolate(levels: tuple[Level, ...], folder: Path) -> tuple[str, ...]:
    """Confine this process to `folder`, its temporary folder, as far as `levels` say.

    Returns one note for each level: what stands, or why it does not.
    """
    notes = [limit_resources()]
    if levels:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for level in ALL:
        if level not in levels:
            notes.append(f"{level}: open")
            continue
        try:
            notes.append(f"{level}: {confine_files(folder) if level == 'files' else deny(level)}")
        except OSError as error:
            notes.append(f"{level}: open, as this kernel refuses ({error.strerror})")
    return tuple(notes)


def limit_resources() -> str:
    """No core file, no endless file, no endless number of open files."""
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_LIMIT_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        _, hard = resource.getrlimit(what)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    return "limits: core, file size, open files"


def confine_files(folder: Path) -> str:
    """With Landlock: write to `folder` alone, read the interpreter, the system's libraries and the GPU.

    Where Landlock knows it, also cut off abstract sockets and signals to processes outside.

    Raises:
        OSError: the kernel does not offer Landlock.
    """
    version = _call(LANDLOCK_CREATE_RULESET, None, 0, 1)
    rights = ALL_FILE_RIGHTS[min(version, max(ALL_FILE_RIGHTS))]
    attributes = _Ruleset(rights, 0, SCOPE_SOCKETS_AND_SIGNALS if version >= 6 else 0)
    size = 24 if version >= 6 else 8
    ruleset = _call(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path, wanted in _allowed(folder, rights):
            _allow(ruleset, path, wanted & rights)
        _call(LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"Landlock {version}"


def deny(level: Level) -> str:
    """With seccomp: the system calls of a level answer 'permission denied', in children too.

    Raises:
        OSError: the kernel does not offer seccomp, or the calls of this machine are not known here.
    """
    machine = platform.machine()
    if machine not in AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    program = _filter(machine, SYSCALLS[level][machine].values())
    array = (_Instruction * len(program))(*program)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(program), array)), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "seccomp"


def _filter(machine: str, denied: Iterable[int]) -> list[_Instruction]:
    """A program over (number, architecture) of a call: another architecture's calls are denied as well."""
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, deny_it = 0x7FFF0000, 0x00050000 | errno.EACCES
    refuse = _Instruction(answer, 0, 0, deny_it)
    program = [_Instruction(load, 0, 0, 4), _Instruction(equal, 1, 0, AUDIT_ARCH[machine]), refuse]
    program += [_Instruction(load, 0, 0, 0), _Instruction(at_least, 0, 1, X32_BIT), refuse]
    for number in denied:
        program += [_Instruction(equal, 0, 1, number), refuse]
    return [*program, _Instruction(answer, 0, 0, allow)]


def _allowed(folder: Path, everything: int) -> Iterator[tuple[str, int]]:
    read = EXECUTE | READ_FILE | READ_DIR
    yield str(folder), everything
    for pattern in DEVICES:
        yield from ((path, DEVICE_RIGHTS | READ_DIR) for path in _matching(pattern))
    for pattern in ETC:
        yield from ((path, read) for path in _matching(pattern))
    package = Path(__file__).parent
    given = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *sys.path]
    # Beside the package lie, in a checkout, the tasks: their folder may be listed, not read.
    readable = [path for path in given if path and Path(path).resolve() != package.parent]
    for path in (*SYSTEM, *PROC, sys.prefix, sys.base_prefix, str(package), *readable):
        yield path, read
    yield str(package.parent), READ_DIR


def _matching(pattern: str) -> Iterator[str]:
    return map(str, Path("/").glob(pattern.removeprefix("/")))


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not Path(path).is_dir():
                rights &= ~NOT_ON_FILES & 0xFFFF
            rule = _Beneath(rights, fd)
            _call(LANDLOCK_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
        finally:
            os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
