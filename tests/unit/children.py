"""Real child processes for the tests of gputop.procfs, gputop.leaks and gputop.signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gputop.model import ProcessKey
from gputop.procfs.stat import read_stat

NOBODY = 65534

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: acts as another user")

#: Leaves a dead first thread behind whose sibling lives on: raw exit(2) of one thread. x86-64 and aarch64 differ.
DEAD_FIRST_THREAD = """
import ctypes, platform, threading, time
threading.Thread(target=lambda: time.sleep(600)).start()
ready()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""

#: In state D until its own child ends: clone(CLONE_VFORK | SIGCHLD) without shared memory.
STUCK = """
import ctypes, os, platform, signal, time
ready()
arguments = [0x4000 | signal.SIGCHLD, 0, 0, 0, 0]
if ctypes.CDLL(None).syscall(56 if platform.machine() == "x86_64" else 220, *map(ctypes.c_long, arguments)) == 0:
    os.read(0, 1)  # end of file when the test lets go
    os._exit(0)
ready()
time.sleep(600)
"""


@contextmanager
def child(code: str = "", *arguments: str | bytes, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A Python running *code* (then sleeping), ready: it has called ``ready()``, or it does so before it sleeps."""
    text = f"import sys\ndef ready():\n    sys.stdout.write('ready\\n'); sys.stdout.flush()\n{code}\n"
    if "ready()" not in code:
        text += "ready()\nimport time\ntime.sleep(600)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def key_of(pid: int) -> ProcessKey:
    stat = read_stat(f"/proc/{pid}/stat")
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


def state_of(pid: int) -> str:
    stat = read_stat(f"/proc/{pid}/stat")
    return stat.state if stat is not None else ""


def wait_for(condition: Callable[[], Any], what: str = "the condition", seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def as_nobody(function: Callable[[], Any]) -> Any:
    """What *function* returns (something JSON has) in a fork that gave up root. Import what it needs before."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            answer = json.dumps(["ok", function()])
        except BaseException as error:
            answer = json.dumps(["failed", repr(error)])
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        outcome, value = json.loads(file.read())
    os.waitpid(pid, 0)
    assert outcome == "ok", value
    return value


def in_new_pid_namespace(code: str) -> Any:
    """What *code* prints, as JSON, run by the first process of a new PID namespace with its own /proc."""
    for unshare in (["unshare", "-pf", "--mount-proc"], ["unshare", "-Urpf", "--mount-proc"]):
        try:
            if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
                break
        except FileNotFoundError:
            pass
    else:
        pytest.skip("no PID namespace can be made here (unshare)")
    done = subprocess.run([*unshare, sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
