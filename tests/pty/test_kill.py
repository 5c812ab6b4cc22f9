"""F9 on real processes that the simulated driver lists: exactly that one gets the signal, and the screen says what
became of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.driver import GIB, SimulatedDriver
from tests.pty.conftest import Start, StartWorker
from tests.pty.terminal import Terminal

pytestmark = pytest.mark.skipif(
    Path("/dev/nvidiactl").exists(), reason="processes that hold no real NVIDIA device are rightly refused here"
)

NOBODY = 65534


def _choose(terminal: Terminal, pid: int) -> None:
    """F9 on the only process the filter leaves: *pid*."""
    terminal.press("/")
    terminal.wait_for("Filter:")
    terminal.press("ctrl+u")
    terminal.type(f"pid:{pid}")
    terminal.press("enter")
    terminal.wait_for(f"filter: pid:{pid}")
    terminal.press("F9")
    terminal.wait_for("Send a signal")
    terminal.wait_for(re.compile(rf"│ +{pid} "))


def test_a_killed_process_frees_its_memory_and_its_neighbour_lives(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    victim, neighbour = worker(), worker()
    with driver.together():
        driver.gpu(0).process(victim.pid, memory=int(5.5 * GIB), while_alive=True)
        driver.gpu(0).process(neighbour.pid, memory=2 * GIB, while_alive=True)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.wait_for(re.compile(r"7\.5 ?/"))
    terminal.press("F9")
    terminal.wait_for("Send a signal")
    dialog = terminal.words()
    assert re.search(rf"{victim.pid} \S+ .*5\.5G", dialog) and "Would free 5.5G" in dialog
    assert "▸ Cancel" in dialog, "Cancel must have the cursor"
    terminal.press("t")
    terminal.wait_for("▸ SIGTERM")
    assert victim.alive, "a letter alone sends nothing"
    terminal.press("enter")
    terminal.wait_for(re.compile(r"exited [\d.]+ s after SIGTERM; released 5\.5G on GPU 0 in [\d.]+ s"))
    assert victim.ended_by() == -signal.SIGTERM
    terminal.press("enter")  # Close
    terminal.wait_gone("SIGTERM sent")
    terminal.wait_for(re.compile(r"2\.0 ?/"))
    terminal.wait_for("released 5.5G on GPU 0")  # stays as a toast
    terminal.wait_for(re.compile(rf"{victim.pid} .* exited \d\d:\d\d:\d\d"))  # a grey line, for some minutes
    assert neighbour.alive


def test_one_that_ignores_sigterm_is_still_running_and_sigkill_is_offered(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    stubborn = worker("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    driver.gpu(0).process(stubborn.pid, memory=GIB, while_alive=True)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("k")
    terminal.wait_for("Cancel")
    terminal.press("t", "enter")
    terminal.wait_for("ignores SIGTERM")
    terminal.wait_for("SIGKILL", 15)
    assert "still running" in terminal.words() and stubborn.alive
    terminal.press("k", "enter")
    terminal.wait_for(re.compile(r"exited [\d.]+ s after SIGKILL"))
    assert stubborn.ended_by() == -signal.SIGKILL


def test_any_signal_by_its_real_number(gputop: Start, driver: SimulatedDriver, worker: StartWorker) -> None:
    target = worker("import signal; signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))")
    driver.gpu(0).process(target.pid, memory=GIB)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("F9")
    terminal.wait_for("Other…")
    terminal.press("up", "enter")
    terminal.wait_for("Signal ")
    terminal.type("usr1")
    terminal.wait_for(re.compile(rf"SIGUSR1 +{int(signal.SIGUSR1)} "))
    terminal.press("enter")
    terminal.wait_for(re.compile(r"▸ SIGUSR1"))
    terminal.press("enter")
    terminal.wait_for("SIGUSR1 sent")
    assert target.process.stdout is not None and target.process.stdout.readline() == b"got it\n"
    assert target.alive


def test_escape_and_cancel_send_nothing(gputop: Start, driver: SimulatedDriver, worker: StartWorker) -> None:
    """The target would print every signal it can catch."""
    target = worker(
        "import signal\nfor n in range(1, 32):\n"
        " try: signal.signal(n, lambda n, _: print('signal', n, flush=True))\n except OSError: pass\n"
    )
    driver.gpu(0).process(target.pid, memory=GIB)
    terminal = gputop(driver=driver)
    for close in ("esc", "enter", "q", "down esc", "down down esc", "k esc", "end enter esc esc"):
        terminal.press("F9")
        terminal.wait_for("Send a signal")
        terminal.press(*close.split())
        terminal.wait_gone("Send a signal")
    os.set_blocking(target.process.stdout.fileno(), False)  # type: ignore[union-attr]
    assert target.alive and target.process.stdout.read() is None  # type: ignore[union-attr]


def test_all_tagged_processes_are_hit_and_no_other(gputop: Start, driver: SimulatedDriver, worker: StartWorker) -> None:
    workers = [worker() for _ in range(4)]
    with driver.together():
        for n, process in enumerate(workers):
            driver.gpu(n % 2).process(process.pid, memory=(4 - n) * GIB, while_alive=True)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("space", "space", "space")
    terminal.wait_for("3 tagged")
    terminal.press("F9")
    terminal.wait_for("Send a signal to 3 processes")
    assert "Would free 9.0G" in terminal.words()
    terminal.press("i", "enter")
    terminal.wait_for("Released 9.0G")
    assert [process.ended_by() for process in workers[:3]] == [-signal.SIGINT] * 3
    assert workers[3].alive


def test_one_that_exits_while_the_dialog_is_open_is_told_and_nothing_sent(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    target = worker()
    driver.gpu(0).process(target.pid, memory=GIB, while_alive=True)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("F9")
    terminal.wait_for("Would free 1.0G")
    target.process.kill()
    terminal.wait_for("exited on its own, nothing sent")
    terminal.wait_for("▸ Close")


def test_a_dead_pid_is_named_so_and_nothing_is_sent(gputop: Start, driver: SimulatedDriver) -> None:
    driver.gpu(0).process(2**22 - 1, memory=GIB)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("F9")
    terminal.wait_for("dead: there is nothing left to signal")
    assert "SIGTERM" not in terminal.text()


def test_gputop_itself_is_never_sent_a_signal(gputop: Start, driver: SimulatedDriver) -> None:
    terminal = gputop("-d", "200ms", driver=driver)
    driver.gpu(0).process(terminal.process.pid, memory=GIB)
    terminal.wait_for(re.compile(rf"^ .*{terminal.process.pid} ", re.M))
    terminal.press("F9")
    terminal.wait_for("this is gputop itself")


def test_anothers_process_is_not_permitted_and_its_owner_named(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker, home: Path
) -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv: acts as another user")
    target = worker()
    driver.gpu(0).process(target.pid, memory=GIB)
    home.chmod(0o777)
    # may read what root may (the tests' Python can be under /root), but may not signal what root may
    drop = (setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all,+dac_read_search",
            "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")  # fmt: skip
    terminal = gputop("-d", "200ms", driver=driver, prefix=drop)
    terminal.press("F9")
    terminal.wait_for("owned by root: run gputop as that user, or with sudo")
    assert "SIGTERM" not in terminal.text() and target.alive


def test_read_only_has_no_way_to_send_a_signal(gputop: Start, driver: SimulatedDriver, worker: StartWorker) -> None:
    target = worker()
    driver.gpu(0).process(target.pid, memory=GIB)
    terminal = gputop("--read-only", driver=driver)
    assert "Kill" not in terminal.lines()[-1]
    for key in ("F9", "k"):
        terminal.press(key)
        terminal.wait_for("--read-only")
        assert "Send a signal" not in terminal.text()
    terminal.press("enter")
    terminal.wait_for("GPU memory ─")
    assert "kill" not in terminal.lines()[-1].lower()
    terminal.press("F9", "k")
    terminal.press("esc")
    terminal.wait_gone("GPU memory ─")
    assert target.alive


def test_a_demo_kills_no_real_process(gputop: Start) -> None:
    terminal = gputop("--demo", "-d", "200ms")
    _choose(terminal, 41832)
    terminal.press("t", "enter")
    terminal.wait_for(re.compile(r"exited .* after SIGTERM; released [\d.]+G on GPU 0"))
