"""What engines, and what sits in front of them, answer when things go wrong: a clear sentence, and on it goes."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.fleet.model import HostState
from gputop.fleet.prometheus import client as client_module
from gputop.fleet.prometheus.client import EngineClient, EngineError, check_url
from gputop.fleet.prometheus.credentials import Credentials, credentials_of
from gputop.fleet.prometheus.source import PrometheusFleet
from gputop.fleet.view import FleetView
from gputop.settings import DEFAULTS, Settings
from gputop.sources.source import SourceError
from tests.engines import ExportedGpu, Expositions, dcgm, free_port, prometheus, scrape_config

Answer = tuple[int, dict[str, str], bytes]


def vector(*samples: tuple[dict[str, str], str], warnings: list[str] | None = None) -> bytes:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in samples]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return json.dumps(answer | ({"warnings": warnings} if warnings else {})).encode()


class Front:
    """An HTTP server that answers every POST by *answer*, and keeps what it was sent."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        seen: list[dict[str, str]] = []
        self.seen = seen

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                seen.append(dict(self.headers.items()))
                status, headers, body = answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def front(status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None) -> Iterator[Front]:
    with contextlib.closing(Front(lambda: (status, headers or {}, body))) as made:
        yield made


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (401, b"Unauthorized", "does not let gputop in (401): put a token into a file"),
        (403, b"<html>no</html>", "does not let gputop in (403)"),
        (422, b'{"status":"error","error":"query would load too many samples"}', "would load too many samples"),
        (400, b'{"status":"error","error":"bad \\u001b[31m query"}', "bad"),
        (404, b"not here", "is the path of the URL right?"),
        (503, b"Service Unavailable", "error 503: it is overloaded or starting"),
        (200, b"<!DOCTYPE html><title>Log in</title>", "answers with a web page, maybe to log in"),
        (200, b'{"status":"success","data":{"resultType":"vec', "broken JSON"),
        (200, b"[1,2]", "broken JSON"),
        (200, b'{"status":"success","data":{"resultType":"string","result":[]}}', "something else than Prometheus"),
    ],
)  # fmt: skip
def test_what_an_engine_answers_becomes_a_sentence(status: int, body: bytes, sentence: str) -> None:
    with front(status, body) as engine, pytest.raises(EngineError, match=r".") as raised:
        EngineClient(engine.url, Credentials()).query("up")
    assert sentence in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_an_engine_that_is_down_is_a_problem_and_no_crash() -> None:
    with contextlib.closing(PrometheusFleet(EngineClient(f"http://127.0.0.1:{free_port()}", Credentials()))) as fleet:
        snapshot = fleet.poll(FleetView())
    assert snapshot.totals is None
    assert snapshot.problems[0].endswith("cannot be reached: connection refused")


def test_silence_ends_with_the_time_limit() -> None:
    def slow() -> Answer:
        time.sleep(3)
        return 200, {}, vector()

    with contextlib.closing(Front(slow)) as engine:
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"no answer within 0\.5 s"):
            EngineClient(engine.url, Credentials(), 0.5).query("up")
        assert time.monotonic() - started < 2


def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LARGEST_BYTES", 100_000)
    many = vector(*(({"a": str(k)}, "1") for k in range(10_000)))
    with front(200, many) as engine, pytest.raises(EngineError, match="stopped reading"):
        EngineClient(engine.url, Credentials()).query("up")


def test_values_that_are_no_numbers_are_not_known() -> None:
    body = vector(({"a": "1"}, "NaN"), ({"a": "2"}, "+Inf"), ({"a": "3"}, "7"), ({"a": "4"}, "junk"))
    with front(200, body) as engine:
        samples = EngineClient(engine.url, Credentials()).query("up").samples
    assert [(sample.labels["a"], sample.value) for sample in samples] == [("3", 7.0)]


def test_a_partial_answer_has_its_warnings() -> None:
    with front(200, vector(warnings=["store \x1b]0;x\x07 unavailable"])) as engine:
        (warning,) = EngineClient(engine.url, Credentials()).query("up").warnings
    assert "unavailable" in warning and "\x1b" not in warning


# -------------------------------------------------------------------- credentials


def test_a_token_goes_to_the_engine_and_not_along_a_redirect_to_another_host() -> None:
    with front(200, vector()) as elsewhere, front(307, b"", {"Location": f"{elsewhere.url}/x"}) as engine:
        client = EngineClient(engine.url, Credentials({"Authorization": "Bearer secret", "X-Scope-OrgID": "a"}))
        client.query("up")
        assert engine.seen[0]["Authorization"] == "Bearer secret"
        assert not {"Authorization", "X-Scope-OrgID"} & set(elsewhere.seen[0])


def test_a_redirect_on_the_same_host_keeps_them_and_circles_end() -> None:
    with contextlib.closing(Front(lambda: (302, {"Location": "/again"}, b""))) as engine:
        with pytest.raises(EngineError, match="redirects in circles"):
            EngineClient(engine.url, Credentials({"Authorization": "Bearer secret"})).query("up")
        assert all(headers["Authorization"] == "Bearer secret" for headers in engine.seen)
        assert len(engine.seen) == 4


def test_secrets_come_from_files_or_the_environment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    assert credentials_of(Settings(fleet_token_file=str(token)), {}).headers == {"Authorization": "Bearer s3cret"}
    basic = {"GPUTOP_PROMETHEUS_USER": "ml", "GPUTOP_PROMETHEUS_PASSWORD": "x"}
    assert credentials_of(DEFAULTS, basic).headers == {"Authorization": "Basic bWw6eA=="}
    headers = credentials_of(DEFAULTS, {"GPUTOP_PROMETHEUS_HEADERS": "X-Scope-OrgID: a|b\nX-Y: 1"}).headers
    assert headers == {"X-Scope-OrgID": "a|b", "X-Y": "1"}
    assert "s3cret" not in repr(credentials_of(Settings(fleet_token_file=str(token)), {}))


@pytest.mark.parametrize(
    "environment",
    [
        {"GPUTOP_PROMETHEUS_TOKEN_FILE": "/nowhere"},
        {"GPUTOP_PROMETHEUS_CA_FILE": "/nowhere"},
        {"GPUTOP_PROMETHEUS_TOKEN": "a\r\nX-Evil: 1"},
        {"GPUTOP_PROMETHEUS_HEADERS": "no header"},
    ],
)
def test_what_cannot_be_used_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(SourceError):
        credentials_of(DEFAULTS, environment)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a b", "http://a:99999", "http://u:p@host", "http://x\n"])
def test_a_url_that_is_none_or_has_a_password_is_refused(url: str) -> None:
    with pytest.raises(SourceError):
        check_url(url)


def test_an_engine_behind_its_own_ca_is_trusted_when_told(tmp_path: Path) -> None:
    import ssl

    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with front(200, vector()) as engine:
        engine._server.socket = context.wrap_socket(engine._server.socket, server_side=True)
        url = engine.url.replace("http:", "https:")
        EngineClient(url, Credentials(ca_file=str(tmp_path / "ca.pem"))).query("up")
        with pytest.raises(EngineError, match="certificate is not accepted"):
            EngineClient(url, Credentials()).query("up")


# ------------------------------------------------------------------ hostile labels


def test_labels_with_escapes_and_markup_are_clean_and_lose_nothing(tmp_path: Path) -> None:
    evil = 'n"1\\ {x} [red]\x1b[31m'
    expositions = Expositions()
    labels = {"pod": "a\x1b]0;x\x07b", "namespace": "[/]", "container": "$(id)"}
    gpus = [ExportedGpu(0, "GPU-0", labels=labels, used=9000.0)]
    expositions.texts["/a"] = dcgm(evil, gpus)
    expositions.texts["/b"] = dcgm("-oProxyCommand=id", [ExportedGpu(0, "GPU-1")])
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a", "b:9400": "/b"}})
    with contextlib.closing(expositions), prometheus(tmp_path, config) as engine:
        engine.until(lambda: len(engine.query("DCGM_FI_DEV_FB_USED")) == 2)
        with contextlib.closing(PrometheusFleet(EngineClient(engine.url, Credentials()))) as fleet:
            snapshot = fleet.poll(FleetView())
    assert snapshot.problems == ()
    names = [host.name for host in snapshot.hosts]
    assert "-oProxyCommand=id" in names and not any("\x1b" in name for name in names)
    (usage,) = next(host for host in snapshot.hosts if "[red]" in host.name).gpus[0].usages
    assert usage.pod is not None and "\x1b" not in usage.pod and usage.container == "$(id)"
    assert all(host.state is HostState.UP for host in snapshot.hosts)


# ------------------------------------------------------------------------ command


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "fleet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def test_once_says_what_is_wrong_and_ends_with_status_8() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run("--once", GPUTOP_PROMETHEUS=url)
    assert done.returncode == 8
    assert "connection refused" in done.stdout
    assert run("--free", "1", "--prometheus", url).returncode == 8


def test_a_password_in_the_url_is_refused_without_being_repeated() -> None:
    done = run("--once", "--prometheus", "http://ml:hunter2@127.0.0.1:1")
    assert done.returncode == 2
    assert "GPUTOP_PROMETHEUS_PASSWORD_FILE" in done.stderr and "hunter2" not in done.stderr


def test_groups_that_an_engine_cannot_sum_leave_the_rest_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expositions = Expositions()
    expositions.texts["/a"] = dcgm("a", [ExportedGpu(0, "GPU-0")])
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a"}})
    with contextlib.closing(expositions), prometheus(tmp_path, config) as engine:
        engine.until(lambda: engine.query("DCGM_FI_DEV_FB_USED"))
        with contextlib.closing(PrometheusFleet(EngineClient(engine.url, Credentials()))) as fleet:
            monkeypatch.setattr("gputop.fleet.prometheus.groups.queries", lambda *_: ["no promql ("])
            snapshot = fleet.poll(FleetView(group_by="job", count=10))
    assert "parse error" in snapshot.problems[0]
    assert [host.name for host in snapshot.hosts] == ["a"]
    assert snapshot.totals is not None and snapshot.totals.gpus == 1


def test_an_engine_that_goes_down_leaves_the_last_figures_and_says_so(tmp_path: Path) -> None:
    expositions = Expositions()
    expositions.texts["/a"] = dcgm("a", [ExportedGpu(0, "GPU-0")])
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a"}})
    with contextlib.closing(expositions), prometheus(tmp_path, config) as engine:
        engine.until(lambda: engine.query("DCGM_FI_DEV_FB_USED"))
        with contextlib.closing(PrometheusFleet(EngineClient(engine.url, Credentials()))) as fleet:
            before = fleet.poll(FleetView(count=10))
            engine.process.kill()
            engine.process.wait()
            after = fleet.poll(FleetView(count=10))
    assert after.problems and not before.problems
    assert (after.taken_at, after.totals, after.hosts) == (before.taken_at, before.totals, before.hosts)
