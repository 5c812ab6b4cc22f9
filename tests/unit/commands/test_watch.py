"""`gputop watch` as a shell, cron and systemd see it."""

from __future__ import annotations

import contextlib
import csv
import http.server
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from gputop.alarms.command import run_command
from gputop.alarms.conditions import parse
from gputop.alarms.delivery import AT_ONCE, WAITING, DeliveryQueue
from gputop.alarms.engine import Alarms
from gputop.alarms.event_log import EventLog
from gputop.alarms.facts import facts, line
from gputop.alarms.webhook import check_url, post
from gputop.commands.shared.refusal import Refusal
from gputop.commands.watch import Actions
from tests.driver import GIB, SimulatedDriver
from tests.unit.sampling.snapshots import gpu, process, snapshot

ROOT = Path(__file__).resolve().parents[3]
WATCH = [sys.executable, "-m", "gputop", "watch"]
PATIENCE = 20.0
NAME = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"  # the simulated driver's


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def once(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*WATCH, *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


class Watching:
    """A `gputop watch` that runs; what it says is collected."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [*WATCH, "-d", "100ms", *arguments],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        pairs = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._readers = [threading.Thread(target=lambda s=s, to=to: to.extend(s), daemon=True) for s, to in pairs]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        until(lambda: len(re.findall(pattern, "".join(self.lines + self.errors))) >= times, self)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(5)
        assert "Traceback" not in "".join(self.errors), self.errors
        return status

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def __str__(self) -> str:
        return "".join(self.lines + self.errors)


def until(true: Callable[[], bool], told: object = "") -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"it did not happen; said so far: {told}"
        time.sleep(0.02)


# ------------------------------------------------------------------------------ once


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--demo", "--when", "memory > 10%"], 1, "GPU 0 (NVIDIA H200): memory "),
        (["--demo", "--when", "memory > 10%", "-q"], 1, ""),
        (["--demo", "--when", "temperature > 120C"], 0, ""),
        (["--demo=leak", "--when", "process memory > 60GiB"], 1, "pid 61020 on GPU 0: memory 70 GiB"),
        (["--demo", "--when", "process nobody gone"], 1, "process nobody is not there"),
        (["--demo", "--when", "gpu:1 memory > 99.9%", "--when", "memory > 1%"], 1, "[memory > 1%]"),
    ],
)
def test_the_exit_status_says_whether_something_holds(arguments: list[str], status: int, said: str) -> None:
    done = once("--once", *arguments)
    assert (done.returncode, done.stderr) == (status, "")
    assert said in done.stdout if said else done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to watch for: --when CONDITION"),
        (["--when", "memry > 1%"], "did you mean memory?"),
        (["--when", "memory > 90%", "--clear", "95%"], "it would clear at 95%"),
        (["--when", "memory > 90%", "--for", "10"], "--for: '10' is not a time"),
        (["--when", "xid", "--once"], "needs to be watched"),
        (["--when", "gpu:9 gpu lost", "--once"], "gpu:9: no such GPU"),
        (["--when", "gpu:9 gpu lost"], "gpu:9: no such GPU"),
        (["--when", "xid", "--webhook", "ftp://x"], "a webhook needs a URL"),
        (["--when", "xid", "--log", "/nowhere/x.csv"], "/nowhere/x.csv: cannot be written"),
    ],
)
def test_wrong_usage_is_told_and_is_status_2(arguments: list[str], said: str) -> None:
    done = once("--demo", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_the_driver_does_not_tell_is_status_2(driver: SimulatedDriver) -> None:
    driver.gpu(1).set(temperature="!not_supported")
    done = once("--once", "--when", "temperature > 120C", env=driver.env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "GPU 1" in done.stderr and "temperature is not reported" in done.stderr


def test_a_sleeping_gpu_is_status_2_not_0() -> None:
    done = once("--demo=laptop", "--once", "--when", "memory > 90%")
    assert (done.returncode, done.stdout) == (2, "")
    assert "GPU 1" in done.stderr and "asleep" in done.stderr


def test_no_driver_is_the_same_status_as_everywhere() -> None:
    assert once("--once", "--when", "memory > 1%").returncode == 3
    assert once("--when", "memory > 1%").returncode == 3


# ---------------------------------------------------------------------- on the driver


def test_memory_that_fills_and_empties(driver: SimulatedDriver, tmp_path: Path) -> None:
    total = driver.gpu(0).set(memory_total=100 * GIB, memory_used=10 * GIB)
    driver.gpu(1).set(memory_total=100 * GIB, memory_used=10 * GIB)
    log = tmp_path / "events.csv"
    arguments = ["--when", "memory > 90%", "--clear", "50%", "--log", str(log)]
    with Watching(*arguments, env=driver.env) as watching:
        time.sleep(0.5)
        total.set(memory_used=95 * GIB)
        watching.wait_for("RAISED")
        total.set(memory_used=60 * GIB)
        time.sleep(0.5)
        total.set(memory_used=40 * GIB)
        watching.wait_for("CLEARED")
        assert watching.end() == 0
    assert [re.sub(r"^[\d-]+ [\d:]+ ", "", line).strip() for line in watching.lines] == [
        f"RAISED  GPU 0 ({NAME}): memory 95%  [memory > 90%]",
        f"CLEARED GPU 0 ({NAME}): memory 40%  [memory > 90%]",
    ]
    rows = list(csv.DictReader(log.open()))
    assert [(row["event"], row["alarm"], row["gpu_index"], row["unit"]) for row in rows] == [
        ("raised", "memory > 90%", "0", "percent"),
        ("cleared", "memory > 90%", "0", "percent"),
    ]


def test_a_gpu_that_is_lost_and_comes_back(driver: SimulatedDriver) -> None:
    with Watching("--when", "gpu lost", "--when", "xid 79", "--when", "gpu:0 power > 0W", env=driver.env) as watching:
        watching.wait_for("gpu:0 power")
        time.sleep(1.0)  # until it has registered for events
        driver.xid(1, 79)
        watching.wait_for(r"RAISED  GPU 1 \(.*Xid 79: .*\[xid 79\]")
        driver.fault("gpu 1 lost")
        watching.wait_for(r"RAISED  GPU 1 \(.*\[gpu lost\]")
        driver.clear_faults()
        watching.wait_for(r"CLEARED GPU 1 \(.*it is back  \[gpu lost\]")
        assert watching.end() == 0
    assert len(watching.lines) == 4


def test_a_process_that_ends(driver: SimulatedDriver) -> None:
    child = subprocess.Popen(["sleep", "100"])
    driver.gpu(0).process(child.pid, memory=5 * GIB)
    with Watching("--when", f"pid {child.pid} gone", "--when", "gpu:0 power > 0W", env=driver.env) as watching:
        watching.wait_for("gpu:0 power")
        child.kill()
        child.wait()
        watching.wait_for(f"RAISED  pid {child.pid} is gone")
        assert watching.end() == 0


# ------------------------------------------------------------------------- the demo


def test_a_condition_must_hold_for_its_time() -> None:
    with Watching("--demo", "--when", "memory > 10%", "--for", "1s") as watching:
        watching.wait_for("RAISED", 2)
        assert watching.end() == 0
    assert all("for 1 s" in line for line in watching.lines)


def test_alarms_of_the_settings_file_and_their_commands(tmp_path: Path) -> None:
    config, out = tmp_path / "config.toml", tmp_path / "out"
    config.write_text(
        f'[[alarms]]\nwhen = "gpu:0 memory > 10%"\nfor = "200ms"\nrun = "echo $GPUTOP_ALARM >> {out}"\n'
        '[[alarms]]\nwhen = "temperature > 120C"\nrun = "false"\n'
    )
    with Watching("--demo", "--config", str(config)) as watching:
        until(out.exists, watching)
        assert watching.end() == 0
    assert out.read_text() == "gpu:0 memory > 10% for 200ms\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(number: int) -> None:
    with Watching("--demo", "--when", "memory > 10%") as watching:
        watching.wait_for("RAISED")
        assert watching.end(number) == 0


def test_a_reader_that_goes_away_ends_it() -> None:
    command = f"{sys.executable} -m gputop watch --demo -d 100ms --when 'memory > 10%' --when 'gpu:0 utilization > 1%'"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (141, 1, "")


def test_the_bell_rings_on_a_terminal() -> None:
    child = pexpect.spawn(
        sys.executable, ["-m", "gputop", "watch", "--demo", "--bell", "--when", "memory > 10%"], timeout=20
    )
    child.expect("RAISED.*\r\n\x07")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


# -------------------------------------------------------------------------- commands


def test_hostile_names_reach_a_command_as_they_are_and_run_nothing(tmp_path: Path) -> None:
    host = process(5).host
    assert host is not None
    evil = f"python $(touch {tmp_path}/a) `touch {tmp_path}/b`; touch {tmp_path}/c # ' \" \\"
    from dataclasses import replace

    bad = replace(process(5), host=replace(host, command=evil, user="$(id)"))
    (event,) = Alarms([parse("process memory > 1GiB")]).look(snapshot(0, [gpu()], [bad]))
    known = facts(event, "gpu01")
    command = f'printf "%s|%s|%s" "$GPUTOP_COMMAND" "$GPUTOP_USER" "$GPUTOP_PID" > {tmp_path}/out'
    assert run_command(command, known) is None
    assert (tmp_path / "out").read_text() == f"{evil}|$(id)|5"
    assert sorted(path.name for path in tmp_path.iterdir() if len(path.name) == 1) == []
    assert "\n" not in line(event)


def test_only_the_facts_of_this_event_are_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTOP_PID", "1")
    (event,) = Alarms([parse("memory > 1%")]).look(snapshot(0, [gpu()]))
    assert run_command(f"env | grep ^GPUTOP_ | sort > {tmp_path}/out", facts(event, "gpu01")) is None
    told = dict(row.split("=", 1) for row in (tmp_path / "out").read_text().splitlines())
    assert "GPUTOP_PID" not in told
    assert told["GPUTOP_EVENT"] == "raised" and told["GPUTOP_GPU_UUID"] == gpu().uuid
    assert told["GPUTOP_TEXT"] == "GPU 0 (NVIDIA H200): memory 50%" and told["GPUTOP_HOST"] == "gpu01"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("sleep 60", "killed, it took longer than 0.2 s"),
    ],
)
def test_a_command_that_fails_is_reported(command: str, said: str) -> None:
    assert said in (run_command(command, {}, seconds=0.2 if "sleep" in command else 20) or "")


def test_slow_commands_hold_nothing_up_and_the_surplus_is_told() -> None:
    said: list[str] = []
    release = threading.Event()
    running: list[int] = []

    def job() -> None:
        running.append(1)
        release.wait(20)

    queue = DeliveryQueue(said.append)
    started = time.monotonic()
    for _ in range(AT_ONCE):
        queue.put(job, "slow")
    until(lambda: len(running) == AT_ONCE)
    for _ in range(WAITING + 2):
        queue.put(job, "slow")
    assert time.monotonic() - started < 10
    assert len(running) == AT_ONCE
    assert said == [f"slow: skipped, {WAITING} others are waiting"] * 2
    release.set()
    assert queue.finish(10) == 0
    assert len(running) == AT_ONCE + WAITING


def test_a_failing_command_is_told_by_watch() -> None:
    with Watching("--demo", "--when", "gpu:0 memory > 10%", "--run", "exit 7") as watching:
        watching.wait_for("--run: exit 7: exit status 7")
        assert watching.end() == 0


# -------------------------------------------------------------------------- webhooks


class Hook(http.server.BaseHTTPRequestHandler):
    answers: list[int]
    got: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(json.loads(body) | {"type": self.headers["Content-Type"]})
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def hook(*answers: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    handler = type("_Hook", (Hook,), {"answers": list(answers), "got": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret/token", handler.got  # type: ignore[attr-defined]
        server.shutdown()


def test_a_webhook_gets_the_facts_as_json() -> None:
    with hook() as (url, got), Watching("--demo", "--when", "gpu:0 memory > 10%", "--webhook", url) as watching:
        until(lambda: bool(got), watching)
        assert watching.end() == 0
    assert got[0]["type"] == "application/json"
    assert got[0]["event"] == "raised" and got[0]["gpu_index"] == 0 and got[0]["unit"] == "percent"
    assert got[0]["text"].startswith("GPU 0 (NVIDIA H200): memory ")
    assert got[0]["pid"] is None


def test_a_webhook_is_tried_again_and_its_failure_does_not_show_its_secret() -> None:
    with hook(503, 200) as (url, got):
        assert post(url, {"a": 1}) is None
        assert len(got) == 2
    with hook(404) as (url, _):
        assert post(url, {}) == "webhook 127.0.0.1: 404 Not Found"
    said = post(url, {}) or ""
    assert "cannot be reached" in said and "secret" not in said
    with pytest.raises(ValueError, match="needs a URL") as caught:
        check_url("https:///secret")
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------------------ logs


def test_json_lines_have_every_fact(tmp_path: Path) -> None:
    (event,) = Alarms([parse("process memory > 1GiB")]).look(snapshot(0, [gpu()], [process(5)]))
    log = EventLog(tmp_path / "a.jsonl")
    log.put(facts(event, "gpu01"))
    log.put(facts(event, "gpu01"))
    first, second = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert first == second
    assert (first["pid"], first["user"], first["command"]) == (5, "ml", "python train.py 5")


def test_a_csv_goes_on_after_a_restart_and_a_rotation(tmp_path: Path) -> None:
    (event,) = Alarms([parse("memory > 1%")]).look(snapshot(0, [gpu()]))
    path = tmp_path / "a.csv"
    EventLog(path).put(facts(event, "gpu01"))
    log = EventLog(path)
    log.put(facts(event, "gpu01"))
    assert [row["text"] for row in csv.DictReader(path.open())] == ["GPU 0 (NVIDIA H200): memory 50%"] * 2
    path.rename(tmp_path / "a.csv.1")
    log.put(facts(event, "gpu01"))
    assert len(list(csv.DictReader(path.open()))) == 1


@pytest.fixture(params=["a file system that is full", "a file that may not grow"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder in which some KiB can be written, and what makes room. As a limit of the process it needs no root."""
    if "system" not in request.param:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        yield tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "gputop-test", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    filler = tmp_path / "filler"
    filler.write_bytes(bytes(8192))
    yield tmp_path, filler.unlink
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_disk_that_fills_inside_a_row_does_not_join_it_with_the_next(
    full_disk: tuple[Path, Callable[[], None]], name: str
) -> None:
    folder, make_room = full_disk
    (event,) = Alarms([parse("process memory > 1GiB")]).look(snapshot(0, [gpu()], [process(5)]))
    known = facts(event, "gpu01")
    log = EventLog(folder / name)
    whole = 0
    with contextlib.suppress(OSError):  # no space left, file too large
        while True:
            log.put(known)
            whole += 1
    make_room()
    log.put(known)
    text = (folder / name).read_text()
    rows: list[dict[str, Any]] = (
        [json.loads(row) for row in text.splitlines()]
        if name.endswith(".jsonl")
        else list(csv.DictReader(text.splitlines()))
    )
    assert whole > 3 and len(rows) == whole + 1
    assert all(row == rows[0] for row in rows)


def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    EventLog(path).put(
        dict.fromkeys(facts(Alarms([parse("memory > 1%")]).look(snapshot(0, [gpu()]))[0], "h"))
        | {"command": "=HYPERLINK(1)"}
    )
    assert next(csv.DictReader(path.open()))["command"] == "'=HYPERLINK(1)"


def test_a_log_that_cannot_be_written_is_told_and_watching_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    with Watching("--demo", "--when", "memory > 10%", "--for", "2s", "--log", str(log)) as watching:
        until(log.exists, watching)
        log.unlink()
        log.mkdir()
        watching.wait_for("the log cannot be written")
        assert watching.end() == 0


def test_once_does_what_is_to_be_done(tmp_path: Path) -> None:
    """For cron: the command, the log; and what cannot be done is told before."""
    ran, log = tmp_path / "ran", tmp_path / "log.csv"
    command = f'echo "$GPUTOP_TEXT" >> {ran}'
    done = once("--demo", "--once", "--when", "memory > 1%", "--run", command, "--log", str(log))
    assert done.returncode == 1 and done.stderr == ""
    assert sorted(line.split()[1] for line in ran.read_text().splitlines()) == ["0", "1"]
    assert len(log.read_text().splitlines()) == 3
    ran.unlink()
    assert once("--demo", "--once", "--when", "memory > 100.5%", "--run", command).returncode == 0
    assert not ran.exists()
    for wrong in (["--log", "/nonexist/x"], ["--webhook", "foo"]):
        assert once("--demo", "--once", "--when", "memory > 1%", *wrong).returncode == 2


def test_what_cannot_be_written_is_no_verdict() -> None:
    for arguments in (["watch", "--demo", "--once", "--when", "memory > 1%"], ["leaks", "--demo=leak"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "gputop", *arguments], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=50)  # fmt: skip
        assert done.returncode == 74 and "No space left" in done.stderr


def test_a_log_is_never_appended_to_a_file_that_is_no_text(tmp_path: Path) -> None:
    """`--log a.pickle`: the row would be the end of somebody's snapshot."""
    victim = tmp_path / "a.pickle"
    victim.write_bytes(b"\x80\x04\x95\x00\x00")
    with pytest.raises(Refusal, match="exists and is not text"):
        Actions(log=str(victim))
    assert victim.read_bytes() == b"\x80\x04\x95\x00\x00"
