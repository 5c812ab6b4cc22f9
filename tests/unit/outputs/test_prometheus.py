"""The exporter: what a scrape says, what it keeps to itself, and that a real Prometheus takes it."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gputop.commands.serve import PORT, address
from gputop.model import GpuFacts, MigInstance, Severity, Snapshot, Xid
from gputop.model.owner import Container, Owner
from gputop.outputs.exporter import AT_ONCE, Exporter
from gputop.outputs.prometheus import SnapshotCollector, XidCounts
from gputop.outputs.prometheus_processes import ProcessOwners, ProcessText
from gputop.outputs.web_config import PasswordFile, WebConfig, WebConfigError, load
from gputop.sampling.one_shot import sample
from gputop.sources.simulated import simulated_machine
from tests.driver import GIB, SimulatedDriver
from tests.unit.sampling.snapshots import START, gpu, process, snapshot

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 30.0

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def until(true: Callable[[], Any], told: Callable[[], object] = str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (result := true()):
        assert time.monotonic() < end, f"it did not happen: {told()}"
        time.sleep(0.05)
    return result


def scrape(made: Snapshot | None, xids: XidCounts | None = None, at: float | None = None) -> str:
    now = at if at is not None else made.taken_at if made else START
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(lambda: made, xids or XidCounts(), clock=lambda: now))
    return generate_latest(registry).decode()


def series(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample_ in family.samples:
            key = (sample_.name, tuple(sorted(sample_.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample_.value
    return found


def value(text: str, metric: str, /, **labels: str) -> float | None:
    """The only value with these labels; None where there is none."""
    found = [v for (n, ls), v in series(text).items() if n == metric and labels.items() <= dict(ls).items()]
    assert len(found) <= 1, found
    return found[0] if found else None


# --------------------------------------------------------------------------- values


def test_base_units_and_ratios() -> None:
    text = scrape(snapshot(0, [gpu(clock_sm_mhz=1980, memory_used_bytes=70 * GIB, sm_active_percent=65.1)]))
    assert value(text, "gputop_gpu_memory_used_bytes") == 70 * GIB
    assert value(text, "gputop_gpu_memory_size_bytes") == 140 * GIB
    assert value(text, "gputop_gpu_utilization_ratio") == 0.5
    assert value(text, "gputop_gpu_sm_active_ratio") == 0.651
    assert value(text, "gputop_gpu_clock_hertz", domain="sm") == 1.98e9
    assert value(text, "gputop_gpu_power_watts") == 350
    assert value(text, "gputop_gpu_info", gpu="0", name="NVIDIA H200") == 1


def test_what_is_not_known_is_absent_and_a_real_zero_is_there() -> None:
    text = scrape(snapshot(0, [gpu(power_watts=None, utilization_gpu_percent=0, event_reasons_mask=None)]))
    assert "gputop_gpu_power_watts{" not in text and "gputop_gpu_clock_event_reason" not in text
    assert value(text, "gputop_gpu_utilization_ratio") == 0
    assert not re.search(r"NaN|None", text)


@pytest.mark.parametrize("trouble", [{"error": "lost"}, {"late": True}, {"asleep": True}])
def test_a_gpu_that_cannot_be_read_is_down_and_has_no_old_values(trouble: dict[str, Any]) -> None:
    text = scrape(snapshot(0, [gpu(0, **trouble), gpu(1)], [process(5), process(6, gpu(1))]))
    assert value(text, "gputop_gpu_up", uuid=gpu(0).uuid) == 0
    assert value(text, "gputop_gpu_up", uuid=gpu(1).uuid) == 1
    assert value(text, "gputop_gpu_memory_used_bytes", uuid=gpu(0).uuid) is None
    assert value(text, "gputop_gpu_processes", uuid=gpu(0).uuid) is None
    assert value(text, "gputop_exporter_last_collect_success") == 1
    rendered = ProcessText().render(snapshot(0, [gpu(0, **trouble), gpu(1)], [process(5), process(6, gpu(1))]))
    assert 'pid="6"' in rendered and 'pid="5"' not in rendered


def test_an_old_reading_is_not_given_out_as_new() -> None:
    made = snapshot(0, [gpu()])
    text = scrape(made, at=START + 60)
    assert value(text, "gputop_exporter_last_collect_success") == 0
    assert value(text, "gputop_gpu_up") == 0
    assert value(text, "gputop_gpu_memory_used_bytes") is None
    assert value(text, "gputop_exporter_last_collect_timestamp_seconds") == START


def test_nothing_read_yet_is_told_as_failure() -> None:
    text = scrape(None)
    assert value(text, "gputop_exporter_last_collect_success") == 0
    assert "gputop_gpu" not in text


def test_a_gpu_listed_twice_gives_each_series_once() -> None:
    series(scrape(snapshot(0, [gpu(), gpu()])))


def test_mig_devices_appear_once_by_their_uuid() -> None:
    instance = MigInstance("MIG-1", 1, 0, "3g.71gb", 71 * GIB, 3 * GIB, 68 * GIB, 0, 31.9)
    other = replace(instance, uuid="MIG-2", compute_instance_id=1)
    broken = replace(instance, uuid="MIG-3", gpu_instance_id=2, error="gone")
    text = scrape(snapshot(0, [gpu(mig=(instance, other, instance, broken))]))
    assert value(text, "gputop_mig_memory_used_bytes", mig_uuid="MIG-1", uuid=gpu().uuid) == 3 * GIB
    assert value(text, "gputop_mig_sm_active_ratio", mig_uuid="MIG-2") == 0.319
    assert value(text, "gputop_mig_info", mig_uuid="MIG-2", gpu_instance_id="1", profile="3g.71gb") == 1
    assert value(text, "gputop_mig_memory_used_bytes", mig_uuid="MIG-3") is None


def test_xids_are_counted_each_once() -> None:
    first, second = (Xid(START + n, 31, "page fault", Severity.WARNING) for n in (1, 2))
    lost = Xid(START + 3, 79, "off the bus", Severity.CRITICAL)
    xids = XidCounts()
    for seen in ((first,), (first,), (first, second), (first, second, lost), (second, lost)):
        xids.add(snapshot(5, [gpu(xids=seen)]))
    text = scrape(snapshot(5, [gpu(xids=(second, lost), error="lost")]), xids)
    assert value(text, "gputop_gpu_xid_errors_total", xid="31") == 2
    assert value(text, "gputop_gpu_xid_errors_total", xid="79") == 1


def test_counters_of_the_board() -> None:
    facts = GpuFacts(ecc_corrected=3, ecc_uncorrected=None, rows_remapped_corrected=1, pcie_replays=9)
    text = scrape(snapshot(0, [gpu(facts=facts)]))
    assert value(text, "gputop_gpu_ecc_errors_total", kind="corrected") == 3
    assert value(text, "gputop_gpu_ecc_errors_total", kind="uncorrected") is None
    assert value(text, "gputop_gpu_pcie_replays_total") == 9


def test_processes_are_told_with_hostile_names_quoted() -> None:
    host = process(5).host
    assert host is not None
    evil = 'a"b\\c} 1\nx'
    bad = replace(process(5, sm_percent=None), host=replace(host, name=evil))
    dead = process(6, started=None, exists=False)
    text = ProcessText().render(snapshot(0, [gpu()], [bad, dead, bad]))
    found = series(text)
    (info,) = [
        dict(labels) for (name, labels), _ in found.items() if name == "gputop_process_info" and ("pid", "5") in labels
    ]
    assert (info["name"], info["user"], info["type"]) == (evil, "ml", "C")
    assert value(text, "gputop_process_memory_used_bytes", pid="5") == 10 * GIB
    assert value(text, "gputop_process_sm_ratio", pid="5") is None
    assert value(text, "gputop_process_alive", pid="6") == 0


def test_labels_follow_a_process_that_runs_another_program() -> None:
    rendering = ProcessText()
    before = process(5)
    assert before.host is not None
    assert 'name="python"' in rendering.render(snapshot(0, [gpu()], [before]))
    after = replace(before, host=replace(before.host, name="vllm"))
    text = rendering.render(snapshot(1, [gpu()], [after]))
    assert 'name="vllm"' in text and 'name="python"' not in text
    assert rendering.render(snapshot(2, [gpu()], [])) == ""


def test_processes_tell_job_pod_namespace_container_unit_and_rank() -> None:
    pod = Container("kubernetes", "c" * 64, "uid-1", 7, "trainer-0", "team-a")
    owners = {
        5: Owner(slurm_job="88123", unit="slurmstepd.scope", rank=3),
        6: Owner(container=pod),
        7: Owner(unit="vllm.service"),
        8: None,
    }
    rendering = ProcessText(lambda host: None if host is None else owners[host.key.pid])
    text = rendering.render(snapshot(0, [gpu()], [process(pid) for pid in owners]))
    told = {dict(labels)["pid"]: dict(labels) for name, labels in series(text) if name == "gputop_process_info"}
    assert (told["5"]["job_id"], told["5"]["rank"], told["5"].get("unit")) == ("88123", "3", None)
    assert (told["6"]["pod"], told["6"]["namespace"], told["6"]["container"]) == ("trainer-0", "team-a", "c" * 64)
    assert told["7"]["unit"] == "vllm.service"
    assert not {"job_id", "pod", "namespace", "container", "unit", "rank"} & set(told["8"])


def test_owners_are_found_out_beside_the_scrape() -> None:
    machine = simulated_machine("8xh200", 0)
    made, _ = sample(machine.source, machine.host, lambda: None)
    owners = ProcessOwners(lambda: machine.investigator)
    rendering = ProcessText(owners.of)
    assert "job_id" not in rendering.render(made)  # nothing waits for it
    owners.look(made)
    until(lambda: 'job_id="91702"' in rendering.render(made))


@pytest.mark.parametrize("name", ["8xh200", "mig", "hot", "laptop", "spark", "hostile", "leak", "empty"])
def test_every_simulated_machine_passes_promtool(name: str) -> None:
    promtool = required("promtool")
    machine = simulated_machine(name, 0)
    made, _ = sample(machine.source, machine.host, lambda: None)
    text = scrape(made) + ProcessText().render(made)
    series(text)
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ------------------------------------------------------------------------------ HTTP


@contextlib.contextmanager
def serving(config: WebConfig | None = None, healthy: bool = True, body: bytes = b"a 1\n" * 999) -> Iterator[Exporter]:
    said: list[str] = []
    exporter = Exporter(("127.0.0.1", 0), lambda: body, lambda: healthy, config, said.append)
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.stop(5)
        assert said == []


def get(url: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, bytes, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


@pytest.mark.parametrize(
    ("header", "zipped"),
    [("gzip", True), ("gzip;q=0", False), ("gzip; q=0.000", False), ("gzip;q=0.5, identity", True), ("", False),
     ("identity", False), ("*", True), ("*;q=0", False), ("gzip;q=0, *", False), ("br, GZIP", True),
     ("gzipped", False)],
)  # fmt: skip
def test_only_who_takes_gzip_gets_it(header: str, zipped: bool) -> None:
    with serving() as exporter:
        headers = get(f"{exporter.url}/metrics", **{"Accept-Encoding": header})[2]
        assert (headers["Content-Encoding"] == "gzip") is zipped


def test_all_addresses_are_ipv4_and_ipv6() -> None:
    exporter = Exporter(("", 0), lambda: b"a 1\n", lambda: True)
    exporter.start()
    try:
        hosts = ["127.0.0.1", "[::1]"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        for host in hosts:
            assert get(f"http://{host}:{exporter.server_port}/metrics")[1] == b"a 1\n"
    finally:
        exporter.stop(5)


def test_an_ipv6_address_that_cannot_be_had_is_told_in_brackets() -> None:
    with contextlib.closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "gputop", "serve", "--demo", "--listen", f"[::1]:{port}"],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == 1 and f"--listen [::1]:{port}: Address already in use" in done.stderr


def test_paths_health_and_compression() -> None:
    with serving() as exporter:
        status, body, headers = get(f"{exporter.url}/metrics")
        assert (status, body) == (200, b"a 1\n" * 999) and headers["Content-Type"].startswith(
            "text/plain; version=0.0.4"
        )
        status, body, headers = get(f"{exporter.url}/metrics", **{"Accept-Encoding": "gzip"})
        assert gzip.decompress(body) == b"a 1\n" * 999 and headers["Content-Encoding"] == "gzip"
        assert get(f"{exporter.url}/healthz")[:2] == (200, b"ok\n")
        assert b"metrics" in get(f"{exporter.url}/")[1]
        assert get(f"{exporter.url}/etc/passwd")[0] == 404
        assert "Python" not in headers["Server"]
    with serving(healthy=False) as exporter:
        assert get(f"{exporter.url}/healthz")[0] == 503


def test_somebody_who_connects_and_says_nothing_holds_nobody_up() -> None:
    with serving() as exporter, contextlib.ExitStack() as stack:
        for _ in range(AT_ONCE - 1):
            stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", exporter.server_port))))
        assert get(f"{exporter.url}/metrics")[0] == 200


def test_more_connections_than_allowed_are_closed() -> None:
    with serving() as exporter, contextlib.ExitStack() as stack:
        for _ in range(AT_ONCE):
            silent = socket.create_connection(("127.0.0.1", exporter.server_port))
            stack.enter_context(contextlib.closing(silent))
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", exporter.server_port), timeout=PATIENCE) as one_more:
            assert one_more.recv(10) == b""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9999", ("", 9999)),
        ("127.0.0.1", ("127.0.0.1", PORT)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:9999", ("::1", 9999)),
        ("[::]", ("::", PORT)),
    ],
)
def test_listen_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize("text", ["", "::1", "a:b", "1.2.3.4:99999", "[x]:1"])
def test_what_is_no_listen_address(text: str) -> None:
    with pytest.raises(Exception, match="is not an address such as"):
        address(text)


# --------------------------------------------------------------- TLS and passwords

HASH = "$2b$04$sKsGIAL4RLG4gDfD1E7EkOYRB1kBrStHuvGwEsQzRTQ1nQHjfYpqS"


def authorization(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def hashed(password: str) -> str:
    bcrypt = pytest.importorskip("bcrypt")
    return str(bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode())


def web_config(folder: Path, text: str) -> WebConfig:
    file = folder / "web.yml"
    file.write_text(text)
    return load(file)


def test_a_password_is_asked_for_on_every_path(tmp_path: Path) -> None:
    config = web_config(tmp_path, f"basic_auth_users:\n  prometheus: {hashed('geheim')}\n")
    with serving(config) as exporter:
        for path in ("/metrics", "/healthz", "/"):
            status, _, headers = get(exporter.url + path)
            assert status == 401 and headers["WWW-Authenticate"].startswith("Basic")
            assert get(exporter.url + path, **authorization("prometheus", "falsch"))[0] == 401
            assert get(exporter.url + path, **authorization("nobody", "geheim"))[0] == 401
            assert get(exporter.url + path, **authorization("prometheus", "geheim"))[0] == 200


@pytest.mark.parametrize("header", [None, "", "Basic", "Basic !", "Basic " + "A" * 5, "Bearer abc", "basic Og=="])
def test_a_header_that_is_none_lets_nobody_in(header: str | None) -> None:
    pytest.importorskip("bcrypt")
    assert not PasswordFile({"a": HASH.encode()}).let_in(header)


def test_tls_and_client_certificates(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("prometheus")
    server.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    files = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  min_version: TLS13\n"
    with serving(web_config(tmp_path, files)) as exporter:
        silent = socket.create_connection(("127.0.0.1", exporter.server_port))  # shakes no hands
        assert exporter.url.startswith("https://")
        assert get(f"{exporter.url}/metrics", trusting)[0] == 200
        with pytest.raises(urllib.error.URLError):
            get(f"{exporter.url}/metrics")
        with pytest.raises((http.client.HTTPException, OSError)):
            get(f"http://127.0.0.1:{exporter.server_port}/metrics")
        silent.close()
    files += "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
    with serving(web_config(tmp_path, files)) as exporter:
        with pytest.raises((http.client.HTTPException, OSError)):
            get(f"{exporter.url}/metrics", trusting)
        client.configure_cert(trusting)
        assert get(f"{exporter.url}/metrics", trusting)[0] == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "keys and values are wanted"),
        ("http_server_config: {http2: true}", "http_server_config: not supported"),
        ("tls_server_config: {cert_file: a}", "key_file missing"),
        ("tls_server_config: {cert_file: a, key_file: b}", "No such file"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: []}", "cipher_suites: not supported"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "min_version is TLS12 or TLS13"),
        ("basic_auth_users: {a: geheim}", "not a bcrypt hash"),
    ],
)
def test_a_wrong_web_config_is_refused(text: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(WebConfigError, match=re.escape(said)):
        web_config(tmp_path, text)


# -------------------------------------------------------------------- the real thing


def required(program: str) -> str:
    """Where *program* (Debian: prometheus) is; without it the test is skipped, or fails where it must run."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("GPUTOP_REQUIRE_PROMETHEUS") == "1":
            pytest.fail(f"{program} is required here: apt-get install prometheus")
        pytest.skip(f"{program} is not installed (Debian: prometheus)")
    return found


@contextlib.contextmanager
def program(*command: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    child = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    said: list[str] = []
    assert child.stderr is not None
    threading.Thread(target=said.extend, args=(child.stderr,), daemon=True).start()
    try:
        yield child, said
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def serve(*arguments: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`gputop serve` on a port of its own: (process, URL)."""
    command = [sys.executable, "-m", "gputop", "serve", "--listen", "127.0.0.1:0", "-d", "200ms", *arguments]
    with program(*command, env={**(env or os.environ), "PYTHONPATH": str(ROOT)}) as (child, said):
        match = until(lambda: re.search(r"metrics at (\S+)/metrics", "".join(said)), lambda: said)
        yield child, match[1]
        assert "Traceback" not in "".join(said), said


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_it_listens_on_this_machine_only_and_ends_cleanly() -> None:
    with serve("--demo") as (child, url):
        assert urllib.parse.urlsplit(url).hostname == "127.0.0.1"
        assert get(f"{url}/healthz")[0] == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0


def test_processes_only_on_request() -> None:
    with serve("--demo") as (_, url):
        text = get(f"{url}/metrics")[1].decode()
        assert "gputop_process_" not in text and "gputop_gpu_processes{" in text
    with serve("--demo", "--processes") as (_, url):
        text = get(f"{url}/metrics")[1].decode()
        assert value(text, "gputop_process_memory_used_bytes", pid="41832") is not None
        assert value(text, "gputop_process_alive", pid="50211") == 0


def test_a_taken_port_and_a_missing_driver_are_told(tmp_path: Path) -> None:
    with serve("--demo") as (_, url):
        taken = urllib.parse.urlsplit(url).netloc
        done = subprocess.run(
            [sys.executable, "-m", "gputop", "serve", "--demo", "--listen", taken],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=30,
        )
        assert done.returncode == 1 and "Address already in use" in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "serve"], capture_output=True, text=True, cwd=ROOT, timeout=30
    )
    assert done.returncode == 3


@pytest.mark.timeout(240)
def test_a_real_prometheus_scrapes_it_and_answers(driver: SimulatedDriver, tmp_path: Path) -> None:
    prometheus = required("prometheus")
    driver.gpu(0).set(memory_total=100 * GIB, memory_used=37 * GIB, utilization_gpu=73).process(
        os.getpid(), memory=5 * GIB
    )
    driver.gpu(1).set(utilization_gpu=5, memory_total=100 * GIB, memory_used=0, power_watts="!not_supported")
    with serve("--processes", env=driver.env) as (_, url):
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: gputop, static_configs: "
            f"[{{targets: ['{urllib.parse.urlsplit(url).netloc}']}}]}}]\n"
        )
        server = f"127.0.0.1:{free_port()}"
        options = (
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={server}",
        )
        with program(prometheus, *options) as (_, said):

            def ask(query: str) -> list[dict[str, Any]]:
                try:
                    _, body, _ = get(f"http://{server}/api/v1/query?" + urllib.parse.urlencode({"query": query}))
                    answer = json.loads(body)
                except (OSError, ValueError):
                    return []
                assert answer.get("status") == "success", (query, answer)
                return list(answer["data"]["result"])

            until(lambda: [r["value"][1] for r in ask("up")] == ["1"], lambda: said[-5:])
            used = until(lambda: ask("gputop_gpu_memory_used_bytes * on (uuid) group_left (gpu) gputop_gpu_info"))
            assert {r["metric"]["gpu"]: float(r["value"][1]) for r in used} == {"0": 37 * GIB, "1": 0}
            (busy,) = ask("gputop_gpu_utilization_ratio > 0.7")
            assert float(busy["value"][1]) == 0.73
            assert len(ask("gputop_gpu_power_watts")) == 1  # absent, not 0
            (mine,) = ask("topk(1, gputop_process_memory_used_bytes)")
            assert (mine["metric"]["pid"], float(mine["value"][1])) == (str(os.getpid()), 5 * GIB)
            driver.xid(0, 31)
            until(lambda: [r["value"][1] for r in ask('gputop_gpu_xid_errors_total{xid="31"}')] == ["1"], lambda: said)
            driver.fault("gpu 1 lost")
            until(lambda: [r["value"][1] for r in ask("gputop_gpu_up == 0")] == ["0"])
            until(lambda: len(ask("gputop_gpu_memory_used_bytes")) == 1)
            driver.clear_faults()
            until(lambda: len(ask("gputop_gpu_up == 1")) == 2)
            for query in dashboard_queries():
                ask(query)  # each is PromQL


def dashboard_queries() -> list[str]:
    dashboard = json.loads((ROOT / "grafana" / "gputop.json").read_text())
    panels = [inner for panel in dashboard["panels"] for inner in [panel, *panel.get("panels", [])]]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [q.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$gpu", ".*") for q in queries]


def test_the_grafana_dashboard_asks_for_series_there_are() -> None:
    machine = simulated_machine("mig", 0)
    made, _ = sample(machine.source, machine.host, lambda: None)
    xids = XidCounts()
    xids.add(snapshot(0, [replace(made.gpus[0], xids=(Xid(START, 31, "", Severity.INFO),))]))
    text = scrape(made, xids) + ProcessText().render(made)
    known = {name for name, _ in series(text)}
    asked = {name for query in dashboard_queries() for name in re.findall(r"gputop_\w+", query)}
    assert asked and asked <= known


def test_a_process_that_died_and_is_still_listed_is_not_alive_for_long(driver: SimulatedDriver) -> None:
    child = subprocess.Popen(["sleep", "100"])
    driver.gpu(0).process(child.pid, memory=5 * GIB)

    def alive() -> float | None:
        return value(get(f"{url}/metrics")[1].decode(), "gputop_process_alive", pid=str(child.pid))

    with serve("--processes", env=driver.env) as (_, url):
        assert alive() == 1
        child.kill()
        child.wait()
        until(lambda: alive() == 0)
