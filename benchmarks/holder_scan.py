"""A holder scan beside 5 000 processes of 20 descriptors and 4 threads each: how long it takes, and what it costs
whoever works in another thread of gputop (a key press there is a wake-up and some milliseconds of Python).

    .venv/bin/python benchmarks/holder_scan.py [PROCESSES]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gputop.leaks.holders.scanner import HolderScanner
from gputop.procfs.proc_host_reader import ProcHostReader

CROWD = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
static void *rest(void *x) { for (;;) pause(); return x; }
int main(int argc, char **argv) {
    int n = atoi(argv[argc - 1]), ends[2];
    for (int i = 0; i < 6; i++) open("/dev/null", O_RDWR);
    for (int i = 0; i < 5; i++) open("/etc/hostname", O_RDONLY);
    for (int i = 0; i < 3; i++) if (pipe(ends)) return 1;
    pid_t parent = getpid();
    for (int i = 0; i < n; i++) {
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) return 1;
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        for (int k = 0; k < 3; k++) { pthread_t t; pthread_create(&t, &small, rest, NULL); }
        rest(NULL);
    }
    puts("ready");
    fflush(stdout);
    return getchar() == EOF ? 0 : 0;
}
"""


def crowd(count: int, folder: str) -> subprocess.Popen[bytes]:
    source, program = Path(folder) / "crowd.c", Path(folder) / "crowd"
    source.write_text(CROWD)
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, source], check=True)
    process = subprocess.Popen([program, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def latency(meanwhile: Callable[[], object] | None, seconds: float = 3.0) -> list[float]:
    """Milliseconds from when a wake-up is due to 2 ms of work being done, sorted; *meanwhile* in another thread."""
    over = threading.Event()

    def background() -> None:
        while not over.is_set():
            if meanwhile is not None:
                meanwhile()
            else:
                over.wait(0.1)

    thread = threading.Thread(target=background, daemon=True)
    thread.start()
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        due = time.perf_counter() + 0.01
        time.sleep(0.01)
        total = 0
        for number in range(40_000):
            total += number
        found.append((time.perf_counter() - due) * 1000)
    over.set()
    thread.join()
    return sorted(found)


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder:
        others = crowd(count, folder)
        try:
            time.sleep(3)  # let them settle
            pid = others.pid
            sample = next(int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) > pid)
            print(f"{len([p for p in os.listdir('/proc') if p.isdigit()])} processes;", end=" ")
            print(f"one has {len(os.listdir(f'/proc/{sample}/fd'))} descriptors,", end=" ")
            print(f"{len(os.listdir(f'/proc/{sample}/task'))} threads; load {os.getloadavg()[0]:.1f}")
            scanner = HolderScanner(ProcHostReader().facts_of)
            for maps in (False, True):
                cpu = cpu_seconds()
                scan = scanner.scan(with_maps=maps)
                cpu = cpu_seconds() - cpu
                print(f"scan{' with maps' if maps else ''}: {scan.took:.2f} s, CPU {cpu:.2f} s, {scan.summary()}")
            for name, work in (("alone", None), ("while scanning", scanner.scan)):
                times = latency(work)
                at = [times[int(len(times) * share)] for share in (0.5, 0.95, 0.99)]
                print(f"latency {name}: median {at[0]:.1f}, 95 % {at[1]:.1f}, 99 % {at[2]:.1f}, max {times[-1]:.1f} ms")
        finally:
            assert others.stdin is not None
            others.stdin.close()
            others.wait()


if __name__ == "__main__":
    main()
