"""Prometheus' HTTP API (https://prometheus.io/docs/prometheus/latest/querying/api/): queries, and failures in words.

Queries are posted, since they are long. An answer is read up to LARGEST_BYTES and for at most the time limit. A
redirect is followed, to another host without credentials.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from gputop import __version__
from gputop.fleet.prometheus.credentials import Credentials
from gputop.model import clean_text
from gputop.sources.source import SourceError

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

TIMEOUT_SECONDS: Final = 10.0  # of one query
CONNECT_SECONDS: Final = 4.0
LARGEST_BYTES: Final = 32 * 1024 * 1024  # of an answer, unpacked
LONGEST_QUERY: Final = 12_000  # VictoriaMetrics takes 16 KiB (-search.maxQueryLen)
REDIRECTS_MOST: Final = 3
_CHUNK_BYTES: Final = 64 * 1024
_REASON_MOST: Final = 300


class EngineError(Exception):
    """The engine did not answer a query. ``str()`` says why and what to do; no credentials are in it."""


class Sample(NamedTuple):
    labels: Mapping[str, str]  # as they came: clean them before they are shown
    value: float  # never NaN or infinite


class RangeSeries(NamedTuple):
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]  # (seconds since the epoch, value)


@dataclass(frozen=True, slots=True)
class Answer:
    samples: tuple[Sample, ...] = ()
    series: tuple[RangeSeries, ...] = ()  # of a range query
    warnings: tuple[str, ...] = ()  # of a partial answer


def check_url(url: str) -> str:
    """*url* without a slash at its end. Raises SourceError in words."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or any(not character.isprintable() or character.isspace() for character in url):
        raise SourceError(f"{clean_text(url, 100)!r} is not a URL such as https://prometheus:9090", 2, transient=False)
    if parts.username or parts.password:
        raise SourceError(
            "a URL with a password can be read by every user of this machine: put it into a file and name that in "
            "GPUTOP_PROMETHEUS_PASSWORD_FILE (and the user in GPUTOP_PROMETHEUS_USER)",
            2,
            transient=False,
        )
    return parts._replace(query="", fragment="").geturl().rstrip("/")


class EngineClient:
    """Safe to use from several threads."""

    def __init__(self, url: str, credentials: Credentials, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """*url* went through :func:`check_url`. Raises SourceError where a certificate cannot be used."""
        import ssl

        import urllib3

        self.url = url
        self.timeout_seconds = timeout_seconds
        self.bytes_received = 0  # unpacked, of all answers; for benchmarks and tests
        self._credentials = credentials
        self._closed = False
        tls: dict[str, Any] = {}
        if url.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=credentials.ca_file)
                if credentials.cert_file:
                    context.load_cert_chain(credentials.cert_file, credentials.key_file)
            except OSError as error:  # ssl.SSLError is one
                file = credentials.cert_file or credentials.ca_file
                raise SourceError(f"{file}: not a certificate that can be used: {error}", 2, transient=False) from None
            tls["ssl_context"] = context
        self._pool = urllib3.PoolManager(maxsize=4, retries=False, **tls)
        self._anonymous = urllib3.PoolManager(maxsize=1, retries=False)  # for redirects to other hosts

    def query(self, expression: str) -> Answer:
        """The values of *expression* now, by the engine's clock. Raises EngineError."""
        data = self._ask("/api/v1/query", {"query": expression})
        kind, result = data.get("resultType"), data.get("result")
        if kind == "scalar" and isinstance(result, list):
            result = [{"metric": {}, "value": result}]
        if kind not in ("vector", "scalar") or not isinstance(result, list):
            raise EngineError(f"{self._host} answers something else than Prometheus does")
        samples = []
        for one in result:
            try:
                labels, value = one["metric"], float(one["value"][1])
            except (TypeError, KeyError, IndexError, ValueError):
                continue
            if math.isfinite(value) and isinstance(labels, dict):
                samples.append(Sample(labels, value))
        return Answer(tuple(samples), warnings=_warnings(data))

    def query_all(self, expressions: Iterable[str]) -> Answer:
        """The values of all *expressions*, in as few queries as an engine takes. Raises EngineError."""
        samples: list[Sample] = []
        warnings: list[str] = []
        batch = ""
        for expression in (*expressions, ""):
            if batch and (not expression or len(batch) + len(expression) > LONGEST_QUERY):
                answer = self.query(batch)
                samples += answer.samples
                warnings += answer.warnings
                batch = ""
            batch = f"{batch} or {expression}" if batch and expression else batch or expression
        return Answer(tuple(samples), warnings=tuple(warnings))

    def query_range(self, expression: str, start: float, end: float, step: float) -> Answer:
        """Its values from *start* to *end*. Raises EngineError."""
        asked = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        data = self._ask("/api/v1/query_range", asked)
        result = data.get("result")
        if data.get("resultType") != "matrix" or not isinstance(result, list):
            raise EngineError(f"{self._host} answers something else than Prometheus does")
        series = []
        for one in result:
            try:
                points = tuple((float(at), float(value)) for at, value in one["values"])
                labels = dict(one["metric"])
            except (TypeError, KeyError, ValueError):
                continue
            series.append(RangeSeries(labels, tuple(point for point in points if math.isfinite(point[1]))))
        return Answer(series=tuple(series), warnings=_warnings(data))

    def close(self) -> None:
        """No further query is asked; one under way ends with its time limit."""
        self._closed = True
        self._pool.clear()
        self._anonymous.clear()

    # ------------------------------------------------------------------- HTTP

    @property
    def _host(self) -> str:
        return urlsplit(self.url).netloc

    def _ask(self, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
        from urllib3.exceptions import HTTPError

        if self._closed:
            raise EngineError("closed")
        end = time.monotonic() + self.timeout_seconds
        form = dict(fields) | {"timeout": f"{self.timeout_seconds:g}s"}
        try:
            response = self._post(self.url + path, form, end)
            try:
                body = self._body(response, end)
            finally:
                response.release_conn()
        except HTTPError as error:
            raise EngineError(self._failure(error)) from None
        except OSError as error:
            raise EngineError(f"{self._host}: {error.strerror or 'the connection broke'}") from None
        return self._data(response, body)

    def _post(self, url: str, form: dict[str, str], end: float) -> BaseHTTPResponse:
        import urllib3

        for _ in range(REDIRECTS_MOST + 1):
            own = _origin(url) == _origin(self.url)
            left = max(0.1, end - time.monotonic())
            headers = {"User-Agent": f"gputop/{__version__}", "Accept-Encoding": "gzip"}
            response = (self._pool if own else self._anonymous).request(
                "POST",
                url,
                fields=form,
                encode_multipart=False,
                headers=headers | dict(self._credentials.headers) if own else headers,
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=left),
            )
            location = response.headers.get("Location") if response.status in (301, 302, 303, 307, 308) else None
            if location is None:
                return response
            response.drain_conn()
            response.release_conn()
            url = urljoin(url, location)
            if urlsplit(url).scheme not in ("http", "https"):
                break
        raise EngineError(f"{self._host} redirects in circles: is the URL the engine's own?")

    def _body(self, response: BaseHTTPResponse, end: float) -> bytes:
        body = bytearray()
        for chunk in response.stream(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > LARGEST_BYTES:
                raise EngineError(f"{self._host} answers with more than {LARGEST_BYTES >> 20} MiB: stopped reading")
            if time.monotonic() > end:
                raise EngineError(f"{self._host} did not finish its answer within {self.timeout_seconds:g} s")
        self.bytes_received += len(body)
        return bytes(body)

    def _data(self, response: BaseHTTPResponse, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if response.status in (401, 403):
            raise EngineError(
                f"{self._host} does not let gputop in ({response.status}): put a token into a file and name it in "
                "GPUTOP_PROMETHEUS_TOKEN_FILE, or set GPUTOP_PROMETHEUS_USER and …_PASSWORD_FILE"
            )
        if isinstance(answer, dict) and answer.get("status") == "success" and isinstance(answer.get("data"), dict):
            return {**answer["data"], "warnings": answer.get("warnings")}
        if isinstance(answer, dict) and answer.get("error"):
            raise EngineError(f"{self._host}: {clean_text(str(answer['error']), _REASON_MOST)}")
        if response.status == 404:
            raise EngineError(f"{self._host} has no {urlsplit(self.url).path}/api/v1: is the path of the URL right?")
        if response.status >= 400:
            hint = ": it is overloaded or starting" if response.status in (429, 502, 503, 504) else ""
            raise EngineError(f"{self._host} answers with error {response.status}{hint}")
        if body.lstrip()[:1] == b"<":
            raise EngineError(
                f"{self._host} answers with a web page, maybe to log in, where the engine was expected: set a token, "
                "or use the engine's own address"
            )
        raise EngineError(f"{self._host} answers with broken JSON: its answer was cut off, or it is no engine")

    def _failure(self, error: Exception) -> str:
        """The kind of failure; the exceptions' own texts hold the URL and more."""
        reasons = {
            "NewConnectionError": "cannot be reached: connection refused",
            "NameResolutionError": "its name has no address",
            "ConnectTimeoutError": f"no connection within {CONNECT_SECONDS:g} s",
            "ReadTimeoutError": f"no answer within {self.timeout_seconds:g} s",
            "SSLError": "its certificate is not accepted (own CA? GPUTOP_PROMETHEUS_CA_FILE), or it speaks no TLS",
            "IncompleteRead": "the connection broke",
            "ProtocolError": "the connection broke",
            "DecodeError": "its answer cannot be unpacked",
        }
        name = type(error).__name__
        return f"{self._host}: {reasons.get(name, name)}"


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _warnings(data: Mapping[str, Any]) -> tuple[str, ...]:
    found = data.get("warnings")
    return tuple(clean_text(str(one), _REASON_MOST) for one in found[:5]) if isinstance(found, list) else ()
