"""`gputop doctor`: what ails a machine is found, told with what to do about it, and tells nobody who one is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from gputop.doctor import FAIL, OK, WARN, Check, host, scrub, terminal
from gputop.doctor import driver as dr
from gputop.doctor.text import as_text, worst
from tests.driver import SimulatedDriver
from tests.unit.test_imports import HEAVY, imported

ROOT = Path(__file__).resolve().parents[3]
DOCTOR = [sys.executable, "-m", "gputop", "doctor"]

Found = list[dict[str, Any]]


def doctor(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*DOCTOR, *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def about(simulated: SimulatedDriver, topic: str) -> Found:
    """What is found about *topic* with that driver."""
    simulated.settle()
    _, output = doctor(simulated.env, "--json")
    return [finding for finding in json.loads(output)["findings"] if finding["topic"] == topic]


def statuses(findings: list[Check], topic: str) -> set[str]:
    return {finding.status for finding in findings if finding.topic == topic}


# ------------------------------------------------------------------------------- the driver


def test_a_healthy_driver_is_told_with_its_versions(driver: SimulatedDriver) -> None:
    driver.set(driver="580.159.04", nvml="13.580.159.04", cuda=13000)
    driver.gpu(0).set(name="NVIDIA H200", mig_mode=0)
    (library,) = about(driver, "library")
    assert library["status"] == "ok"
    for part in ("13.580.159.04", "580.159.04", "CUDA 13.0", "libnvidia-ml.so.1"):
        assert part in library["words"]
    (gpu,) = about(driver, "GPU 0")
    assert gpu["status"] == "ok" and "NVIDIA H200" in gpu["words"] and "persistence on" in gpu["words"]


@pytest.mark.parametrize(
    ("fault", "topic", "words", "fix"),
    [
        ("init driver_mismatch", "driver", "differ", "reboot"),
        ("init no_driver", "driver", "not running", "modprobe"),
        ("init no_permission", "driver", "permission", "root"),
        ("init no_library", "library", "not found", "install"),
        ("init hang", "driver", "no answer within 5 s", "dmesg"),
    ],
)
def test_a_driver_that_is_not_to_be_had_fails_with_what_to_do(
    driver: SimulatedDriver, fault: str, topic: str, words: str, fix: str
) -> None:
    driver.fault(fault)
    driver.settle()
    started = time.monotonic()
    status, output = doctor(driver.env, "--json")
    assert status == 1 and time.monotonic() - started < 30
    (found,) = [finding for finding in json.loads(output)["findings"] if finding["topic"] == topic]
    assert found["status"] == "fail" and words in found["words"] and fix in found["fix"]


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({"persistence_mode": 0}, "warn", "persistence off"),
        ({"mig_mode": 0, "mig_mode_pending": 1}, "warn", "switched on"),
        ({"remapped_pending": 1}, "warn", "remapping is pending"),
        ({"remapped_failure": 1}, "fail", "memory row remapping failed"),
        ({"event_reasons": 8}, "warn", "has reduced its clocks"),
        ({"recovery_action": 2}, "fail", "Node Reboot"),
    ],
)
def test_what_ails_a_gpu(driver: SimulatedDriver, values: dict[str, int], status: str, words: str) -> None:
    driver.gpu(1).set(**values)
    worries = [finding for finding in about(driver, "GPU 1") if finding["status"] != "ok"]
    assert [worry["status"] for worry in worries] == [status]
    assert words in worries[0]["words"] and worries[0]["fix"]


def test_one_lost_gpu_fails_and_the_other_is_told(driver: SimulatedDriver) -> None:
    driver.fault("gpu 1 lost")
    assert about(driver, "GPU 0")[0]["status"] == "ok"
    (lost,) = about(driver, "GPU 1")
    assert lost["status"] == "fail" and lost["words"] == "GPU is lost" and "reboot" in lost["fix"]


def test_no_gpu_at_all_and_processes_that_are_not_listed(driver: SimulatedDriver) -> None:
    driver.fault("call nvmlDeviceGet*RunningProcesses* no_permission")
    (denied,) = about(driver, "processes")
    assert denied["status"] == "warn" and "Insufficient Permissions" in denied["words"]
    driver.gpus = 0
    assert about(driver, "GPUs")[0]["status"] == "fail"


def test_a_library_where_the_loader_does_not_look_is_found(tmp_path: Path) -> None:
    from gputop.sources.source import SourceError

    (tmp_path / "usr/lib/wsl/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1").touch()
    (found,) = dr._refused(SourceError("not found.", 3), tmp_path)
    assert found.status == FAIL and "LD_LIBRARY_PATH=/usr/lib/wsl/lib" in found.fix


# ------------------------------------------------------------------------------ the machine


def machine(root: Path, gpus: int = 2, nodes: int = 2) -> Path:
    """A root directory with device files (plain ones) and /proc entries for GPUs."""
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(nodes))):
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / name).touch(0o666)
    for number in range(gpus):
        (root / f"proc/driver/nvidia/gpus/0000:{number:02}:00.0").mkdir(parents=True)
    return root


def test_device_files_are_there_and_ours(tmp_path: Path) -> None:
    assert [(f.status, f.fix) for f in host.devices(machine(tmp_path))] == [(OK, "")]


def test_device_files_that_are_missing(tmp_path: Path) -> None:
    (missing,) = host.devices(tmp_path)
    assert missing.status == FAIL and "nvidiactl" in missing.message and missing.fix
    machine(tmp_path, gpus=8, nodes=2)
    (tmp_path / "dev/nvidia-uvm").unlink()
    found = list(host.devices(tmp_path))
    assert any("8 GPUs" in f.message and "for 2" in f.message for f in found)
    assert any("nvidia-uvm" in f.message and f.status == WARN for f in found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_device_files_that_are_not_ours(tmp_path: Path) -> None:
    (machine(tmp_path) / "dev/nvidia1").chmod(0o600)
    (tmp_path / "dev/nvidia1").chmod(0)
    assert any(f.status == FAIL and "/dev/nvidia1" in f.message for f in host.devices(tmp_path))


def test_a_namespace_of_our_own_and_a_hidden_proc(tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532222]")
    (tmp_path / "proc/self/mounts").write_text("proc /proc proc rw,nosuid,hidepid=2 0 0\n")
    found = list(host.processes(tmp_path))
    assert statuses(found, "PID namespace") == statuses(found, "/proc") == {WARN}
    assert any("--pid=host" in f.fix for f in found)


def test_a_container_without_the_utility_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setenv("NVIDIA_DRIVER_CAPABILITIES", "compute,graphics")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "void")
    found = list(host.container(tmp_path))
    assert [f.status for f in found] == [OK, WARN, WARN] and "utility" in found[1].message


# ---------------------------------------------------------------------- terminal and settings


def test_a_terminal_is_measured(driver: SimulatedDriver) -> None:
    driver.settle()
    environment = {**driver.env, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "TMUX": "x", "COLORTERM": ""}
    environment.pop("COLUMNS", None)
    child = pexpect.spawn(
        sys.executable, ["-m", "gputop", "doctor"], env=environment, dimensions=(10, 70), encoding="utf-8"
    )
    output = child.read()
    child.close()
    plain = " ".join(output.split())
    assert "70×10: too small" in plain and "inside tmux" in plain and "256; set COLORTERM" in plain
    assert child.exitstatus == 1 and "\x1b[1;31m" in output
    assert all(len(line) <= 70 + 12 for line in output.splitlines())  # 12: the colour's own characters


@pytest.mark.parametrize("term", ["", "dumb"])
def test_a_terminal_that_cannot_draw(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    assert any("TERM is" in f.message and f.fix for f in terminal.terminal())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("uid_map", "capabilities", "status", "said"),
    [
        ("0 0 4294967295", "000001ffffffffff", OK, "root: every process"),
        ("0 1000 1", "000001ffffffffff", WARN, "root of a user namespace only"),
        ("0 100000 65536", "000001ffffffffff", WARN, "root of a user namespace only"),
        ("0 0 4294967295", "00000000a80425fb", WARN, "root without CAP_SYS_PTRACE: "),  # docker's usual ones
    ],
)
def test_root_is_told_as_far_as_it_goes(
    tmp_path: Path, uid_map: str, capabilities: str, status: str, said: str
) -> None:
    """`unshare -r` and rootless containers: root there, nobody outside. leaks says so too."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/uid_map").write_text(f"         {uid_map}\n")
    (tmp_path / "proc/self/status").write_text(f"Name:\tgputop\nCapEff:\t{capabilities}\n")
    (rights,) = [check for check in host.processes(tmp_path) if check.topic == "rights"]
    assert rights.status == status and rights.message.startswith(said)


def test_a_wrong_settings_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("refresh = 5 = 6\n")
    (wrong,) = terminal.settings(file)
    assert wrong.status == WARN and "line 1" in wrong.message
    file.write_text('refresh = "1s"\n')
    assert [f.status for f in terminal.settings(file)] == [OK]


def test_a_package_that_is_missing_is_told_and_no_crash(tmp_path: Path, driver: SimulatedDriver) -> None:
    for name in ("platformdirs", "textual"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r}, path='')\n")
    driver.settle()
    blocked = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gputop.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", blocked, str(tmp_path), "doctor"],
        env={**driver.env, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "" and "pip install platformdirs" in done.stdout
    (versions, missing) = dr.packages(("textual", "no-such-distribution"))
    assert versions.status == OK and "textual " in versions.message
    assert missing.status == FAIL and "pip install no-such-distribution" in missing.fix


# -------------------------------------------------------------------------------- as a whole


def test_nothing_personal_is_told(driver: SimulatedDriver, tmp_path: Path) -> None:
    home = tmp_path / "anna-lovelace"
    config = home / ".config" / "gputop" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'gpus = 1\n"{home}/x" = 1\nrefresh = "anna-lovelace"\n')
    driver.settle()
    environment = {
        **driver.env,
        "HOME": str(home),
        "USER": "anna-lovelace",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "SSH_CONNECTION": "203.0.113.7 5 203.0.113.8 22",
    }
    for arguments in ((), ("--json",)):
        _, output = doctor(environment, *arguments)
        nodename = os.uname().nodename
        assert "anna-lovelace" not in output and "203.0.113" not in output and "~/.config/gputop" in output
        assert len(nodename) < 3 or nodename not in output
        assert driver_uuid(driver) not in output


def driver_uuid(simulated: SimulatedDriver) -> str:
    return "GPU-fa4e0000"


def test_names_inside_words_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "driver")
    (found,) = scrub([Check("x", OK, "the driver of drivers\x1b[2J")])
    assert found.message.startswith("the USER of drivers") and "\x1b" not in found.message


def test_the_text_is_plain_and_counts(driver: SimulatedDriver) -> None:
    findings = [Check("a", OK, "fine"), Check("bcd", WARN, "hm", "do"), Check("e", FAIL, "no", "fix")]
    assert as_text(findings) == (
        "ok    a    fine\nwarn  bcd  hm\n           → do\nfail  e    no\n           → fix\n\n1 failure, 1 warning\n"
    )
    assert worst(findings) == FAIL and worst(findings[:2]) == WARN and worst(findings[:1]) == OK
    assert as_text(findings, ascii_only=True).isascii()
    assert max(map(len, as_text([Check("x", OK, "word " * 50)], width=40).splitlines())) <= 40


def test_the_doctor_needs_no_screen(driver: SimulatedDriver) -> None:
    driver.settle()
    assert not imported("doctor", env=driver.env) & {*HEAVY, "psutil", "gputop.ui", "gputop.sampling.poller"}
