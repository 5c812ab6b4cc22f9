"""Every NVML call with every error code, on one GPU and on all: nothing breaks, nothing unknown is called 0 or none.

In this process, on the simulated driver; a figure, text or list of a reading may turn unknown by a fault, but not into
0, an empty text, an empty list or False.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import gputop
from gputop.alarms.conditions import parse
from gputop.alarms.engine import once
from gputop.cli import run
from gputop.leaks import text as leaks_text
from gputop.leaks.report import LeakReport
from gputop.model import Snapshot, Verdict
from gputop.outputs.json_lines import as_dict
from gputop.outputs.table import render
from gputop.settings import DEFAULTS
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import NVML_MESSAGES, PERMANENT
from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS, Query
from gputop.sources.query_fields import Unanswered
from gputop.sources.source import SourceError
from tests.driver import GIB, SimulatedDriver
from tests.unit.children import child, wait_for
from tests.unit.test_driver_faults import Machine, exposition

CODES: Final = (*sorted(NVML_MESSAGES), abi.UNKNOWN)
NAME: Final = re.compile(r'"(nvml(?:Device|System|Gpm)[A-Za-z0-9_]+)"')
CONDITIONS: Final = [
    parse(text)
    for text in (
        "memory > 1%", "temperature > 1C", "power > 1%", "utilization > 1%", "process memory > 1GiB",
        f"pid {os.getpid()} gone", "process no-such-program gone", "gpu lost",
    )
]  # fmt: skip


def functions(driver: SimulatedDriver) -> list[str]:
    """Those that gputop calls on this machine."""
    sources = Path(gputop.__file__).parent / "sources" / "nvml"
    names = {name for file in sources.rglob("*.py") for name in NAME.findall(file.read_text())}
    names |= {f"nvmlDeviceGet{kind}RunningProcesses{v}" for kind in ("Compute", "Graphics", "MPSCompute")
              for v in ("", "_v2", "_v3")}  # fmt: skip
    return sorted(name for name in names if driver.calls(name))


def busy(driver: SimulatedDriver) -> None:
    """Two GPUs of which every figure is something else than 0."""
    with driver.together():
        for index in range(2):
            gpu = driver.gpu(index).set(
                memory_used=8 * GIB, bar1_used=GIB, utilization_gpu=50, utilization_memory=40, utilization_encoder=30,
                utilization_decoder=20, utilization_jpeg=10, utilization_ofa=10, temperature=60, temperature_memory=70,
                fans=2, fan_percent=40, fan_rpm=1200, performance_state=2, event_reasons=4, pcie_replays=3,
                pcie_tx_rate=1e9, pcie_rx_rate=1e9, pcie_counter_bits=64, persistence_mode=1, display_active=1,
                ecc_mode=1, ecc_corrected_volatile=1, ecc_uncorrected_volatile=2, ecc_corrected_aggregate=3,
                ecc_uncorrected_aggregate=4, remapped_corrected=1, remapped_uncorrected=1, remapped_pending=1,
                remapped_failure=1, minor_number=index + 1, nvlink_links=4, nvlink_active=15, nvlink_tx_rate=1e9,
                nvlink_rx_rate=1e9, recovery_action=1,
            )  # fmt: skip
            gpu.process(os.getpid(), memory=5 * GIB, sm=50, mem=40, enc=30, dec=20)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The figures, texts and empty lists in a JSON value, each with where it stands."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list) and value and not isinstance(value[0], str | int | float):
        yield path, value
        for n, part in enumerate(value):
            yield from leaves(part, f"{path}[{n}]")
    else:
        yield path, value


#: What "not supported" is an answer to, and what else is one: (function, where in the JSON), codes.
UNSUPPORTED: Final = PERMANENT | {abi.INVALID_ARGUMENT}
ANSWERS: Final = (
    ("FanSpeed", r"facts\.fan_rpm|fans_percent", PERMANENT),
    ("NumFans", r"facts\.fan_rpm|fans_percent", PERMANENT),
    ("NvLinkState", r"facts\.nvlinks", UNSUPPORTED),
    ("GpmQueryDeviceSupport", r"facts\.gpm", PERMANENT),
    ("ProcessUtilization", r"processes.*_percent", frozenset({abi.NOT_FOUND})),  # nobody was active
    ("", r"facts\.topology", frozenset({abi.GPU_IS_LOST})),  # how it is connected to those that can be read
    ("", r"\.notes:|\.host\.", frozenset(CODES)),  # our own words; the host's figures change
)


def is_answer(pattern: str, code: int, said: str) -> bool:
    return any(part in pattern and code in codes and re.search(place, said) for part, place, codes in ANSWERS)


def turned_into_nothing(before: dict[str, Any], after: Any) -> list[str]:
    """What was something and is now called 0, empty or False."""
    return [
        f"{path}: {before[path]!r} became {value!r}"
        for path, value in leaves(after)
        if value in (0, "", [], False) and value is not None and before.get(path)
    ]


@pytest.fixture
def quick_gpm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.sources.nvml.readings.gpm.MIN_INTERVAL_SECONDS", 0.0)


@pytest.fixture(params=["one GPU", "all"])
def where(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "all" else "gpu 0 "


def twice(driver: SimulatedDriver) -> tuple[Machine, Snapshot]:
    """A fresh source after all of its tiers, twice: what is a difference is known then."""
    machine = Machine(driver)
    try:
        machine.read(slow=True)
        return machine, machine.read(after=8, slow=True)
    except SourceError:
        machine.close()
        raise


def patterns(name: str) -> list[str]:
    base = re.sub(r"_v\d$", "", name)
    return [name] if base == name else [name, f"{base}*"]


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("quick_gpm")
def test_every_call_with_every_code(driver: SimulatedDriver, where: str) -> None:
    busy(driver)
    for index in range(2):
        driver.gpu(index).gpm({2: 50, 3: 40, 5: 30, 10: 20})
    machine, snapshot = twice(driver)
    before = dict(leaves(as_dict(snapshot)))
    machine.close()
    wrong: list[str] = []
    calls = functions(driver)
    assert len(calls) > 50
    for pattern in dict.fromkeys(pattern for name in calls for pattern in patterns(name)[-1 if where else 0 :]):
        for code in CODES:
            fault = f"{where}call {pattern} {code}"
            with driver.faulty(fault):
                said = outcome(driver, before, code)
                wrong += [f"{fault}: {one}" for one in said if not is_answer(pattern, code, one)]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:60])


def outcome(driver: SimulatedDriver, before: dict[str, Any], code: int) -> Iterator[str]:
    """What is wrong of all that is said with a fault in place."""
    try:
        machine, snapshot = twice(driver)
    except SourceError as error:
        if not (3 <= error.exit_status <= 8 and str(error)):
            yield f"exit status {error.exit_status}"
        return
    plain = as_dict(snapshot)
    yield from turned_into_nothing(before, plain)
    table, metrics = render(snapshot), exposition(snapshot)
    known = all(gpu.processes_known for gpu in snapshot.gpus)
    if not snapshot.processes and known:
        yield "no process is listed, and no reason"
    if "No processes" in table:
        yield "the table says: no processes"
    for line in metrics.splitlines():
        if line.startswith("gputop_gpu_processes{") and line.endswith(" 0.0"):
            yield line
    report = machine.finder.step(snapshot, DEFAULTS)
    yield from judged(report, snapshot)
    holding, unclear = once(CONDITIONS, snapshot, lambda pid: None)
    said = {(alarm.rule, alarm.subject.partition("/")[0]) for alarm in (*holding, *unclear)}
    for condition in CONDITIONS[:5]:
        yield from (f"{condition.text}: not told of {gpu.uuid}" for gpu in snapshot.gpus
                    if (condition.text, gpu.uuid) not in said)  # fmt: skip
    if not known and any("gone" in alarm.rule for alarm in holding):
        yield "a process is called gone"
    machine.close()


def judged(report: LeakReport, snapshot: Snapshot) -> Iterator[str]:
    if report.those(Verdict.LEAK) or report.unattributed:
        yield "somebody is accused"
    unknown = any(not gpu.processes_known or gpu.memory_used_bytes is None for gpu in snapshot.gpus)
    if unknown and not report.unsure:
        yield f"leaks: {leaks_text.summary(report)}"


@pytest.mark.timeout(180)
def test_every_call_of_a_query_with_every_code(driver: SimulatedDriver) -> None:
    """A code on one GPU and another on the other, each in a thread of its own."""
    busy(driver)
    driver.load()
    rows = asked()
    assert sum(bool(value) and not isinstance(value, Unanswered) for row in rows for value in row) > 100
    wrong: list[str] = []
    second = CODES[len(CODES) // 2 :]
    for pattern in dict.fromkeys(patterns(name)[-1] for name in functions(driver)):
        for pair in zip(CODES, second, strict=False):
            faults = [f"gpu {index} call {pattern} {code}" for index, code in enumerate(pair)]
            fault = " and ".join(faults)
            with driver.faulty(*faults):
                driver.load()
                try:
                    now = asked()
                except SourceError as error:
                    if not 3 <= error.exit_status <= 8:
                        wrong.append(f"{fault}: exit status {error.exit_status}")
                    continue
                if len(now) < len(rows):
                    wrong.append(f"{fault}: {len(now)} rows")
                wrong += [
                    f"{fault}: {field.name} was {old!r}, is {new!r}"
                    for fields, old_row, new_row in zip((GPU_FIELDS, GPU_FIELDS, APP_FIELDS, APP_FIELDS), rows, now,
                                                        strict=False)
                    for field, old, new in zip(fields, old_row, new_row, strict=True)
                    if not isinstance(new, Unanswered) and not new and new is not old and old
                    and not isinstance(old, Unanswered)
                ]  # fmt: skip
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:60])


def asked() -> list[list[Any]]:
    query = Query()
    query.select(())
    try:
        return [*query.gpu_rows(GPU_FIELDS), *query.app_rows(APP_FIELDS)]
    finally:
        query.close()


# ---------------------------------------------------------------------------- as programs

EVERYTHING: Final = ("nvmlDeviceGet*", "nvmlDeviceGet*Processes*", "nvml*")
#: Of --once: done, no library, not loaded, mismatch, no permission, no GPU, anything else.
DOCUMENTED: Final = frozenset({0, 3, 4, 5, 6, 7, 8})


def program(driver: SimulatedDriver, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gputop", *arguments], env={**driver.env, "XDG_CONFIG_HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)
    assert "Traceback" not in said[1] and "internal error" not in "".join(said), said
    return said


@pytest.mark.timeout(120)
def test_watch_and_serve_live_through_every_code(driver: SimulatedDriver) -> None:
    """They go on, and nobody is told that a living process is gone or that a GPU has 0 processes."""
    with child() as living, socket.create_server(("127.0.0.1", 0)) as probe:
        driver.gpu(0).process(living.pid, memory=5 * GIB, sm=50)
        driver.gpu(1).process(living.pid, memory=GIB, sm=50)
        port = probe.getsockname()[1]
        probe.close()
        watch = program(
            driver, "watch", "--when", "process python gone", "--when", "process memory < 1MiB", "-d", "100ms"
        )
        serve = program(driver, "serve", "--listen", f"127.0.0.1:{port}", "-d", "100ms")

        def scrape() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        wait_for(lambda: _answers(scrape))
        for pattern in EVERYTHING[:2]:
            for code in CODES:
                with driver.faulty(f"call {pattern} {code}"):
                    time.sleep(0.15)
                    counts = [line for line in scrape().splitlines() if line.startswith("gputop_gpu_processes{")]
                    assert not [line for line in counts if line.endswith(" 0.0")], (pattern, code)
                assert watch.poll() is None and serve.poll() is None, (pattern, code)
        ended(serve)
        said, _ = ended(watch)
    assert "is gone" not in said and "is not there" not in said, said


def _answers(scrape: Callable[[], str]) -> bool:
    try:
        return "gputop_gpu_processes{" in scrape()
    except OSError:
        return False


@pytest.mark.timeout(120)
def test_every_code_ends_once_and_query_with_a_documented_status(
    driver: SimulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    with child() as living:
        driver.gpu(0).process(living.pid, memory=5 * GIB, sm=50)
        driver.gpu(1).process(living.pid, memory=GIB, sm=50)
        for pattern in EVERYTHING:
            for code in CODES:
                with driver.faulty(f"call {pattern} {code}"):
                    if pattern != "nvmlDeviceGet*":
                        driver.load()
                        assert run(["--once", "--json"]) in DOCUMENTED, (pattern, code)
                        said = capsys.readouterr()
                        assert not said.out or json.loads(said.out)["processes"] != [], (pattern, code)
                        assert said.out or said.err.startswith("gputop: ")
                    driver.load()
                    status = run(["query", "--gpu", "index,name,memory.used", "--format", "csv,noheader"])
                    assert status in {0, 4, 6, 9, 10, 12, 15, 16, 18, 255}, (pattern, code, status)
                    assert ", 0 MiB" not in capsys.readouterr().out


@pytest.mark.timeout(60)
def test_leaks_never_says_no_leak_of_what_could_not_be_read(driver: SimulatedDriver) -> None:
    started = []
    with child() as living:
        for number, fault in enumerate((
            "call nvmlDeviceGet*Processes* unknown", "gpu 0 call nvmlDeviceGet*Processes* no_permission",
            "call nvmlDeviceGetMemoryInfo* unknown", "gpu 0 lost", "call nvml* driver_mismatch",
        )):  # fmt: skip
            one = SimulatedDriver(driver.scenario.parent / str(number), gpus=2)
            one.gpu(0).process(living.pid, memory=5 * GIB)
            one.fault(fault)
            started.append((fault, program(one, "leaks")))
        for fault, process in started:
            out, err = process.communicate(timeout=40)
            assert "Traceback" not in err and "internal error" not in out + err, (fault, err)
            assert process.returncode == (5 if "mismatch" in fault else 2), (fault, process.returncode, out, err)
            assert "no leak found\n" not in out, (fault, out)
