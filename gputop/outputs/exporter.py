"""The exporter's HTTP side: /metrics, /healthz, and a page that says so.

Nobody who connects can hold it up: handshakes and requests happen in threads of their own, so many at most, and each
has a time limit.
"""

from __future__ import annotations

import gzip
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from gputop import __version__
from gputop.outputs.web_config import WebConfig

AT_ONCE: Final = 16  # connections; more are closed
CLIENT_SECONDS: Final = 10.0  # for each read or write
TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"

_PAGE: Final = b"""<!doctype html><meta charset="utf-8"><title>gputop exporter</title>
<h1>gputop exporter</h1><p><a href="metrics">Metrics</a> \xc2\xb7 <a href="healthz">Health</a></p>
"""


def host_and_port(host: str, port: int) -> str:
    """As URLs have them: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` header takes gzip (RFC 9110, 12.5.3): ``gzip;q=0`` is a no, ``*`` is any other."""
    weights: dict[str, bool] = {}
    for coding in accept_encoding.lower().split(","):
        name, *parameters = [part.strip() for part in coding.split(";")]
        weights[name] = not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", parameter) for parameter in parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


class Exporter(ThreadingHTTPServer):
    """Serves *metrics()* (the text format) on *address* (without a host, on all addresses), and whether *healthy()*.
    Raises OSError where it cannot bind.

    ``start()`` serves in a thread until ``stop()``.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(
        self,
        address: tuple[str, int],
        metrics: Callable[[], bytes],
        healthy: Callable[[], bool],
        config: WebConfig | None = None,
        report: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.metrics, self.healthy = metrics, healthy
        self.config = config or WebConfig()
        self._report = report
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.2,), daemon=True, name="gputop-exporter")
        self._all_addresses = not address[0]
        if self._all_addresses:
            address = ("::" if socket.has_dualstack_ipv6() else "0.0.0.0", address[1])
        family, _, _, _, address_ = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__(address_[:2], _Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        if self._all_addresses and self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4 too
        socketserver.TCPServer.server_bind(self)  # HTTPServer asks the DNS for our name
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        scheme = "http" if self.config.tls is None else "https"
        return f"{scheme}://{host_and_port(self.server_name, self.server_port)}"

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Take no more requests; wait for those under way, at most *seconds*."""
        self.shutdown()
        self.server_close()
        for _ in range(AT_ONCE):
            self._free.acquire(timeout=seconds / AT_ONCE)

    # -- connections

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(CLIENT_SECONDS)
        if self.config.tls is not None:
            request = self.config.tls.wrap_socket(request, server_side=True)  # here, not where all others wait
        super().finish_request(request, client_address)
        if isinstance(request, ssl.SSLSocket):
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # somebody hung up, was too slow, or speaks no TLS
            self._report(f"internal error while answering a request: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    server: Exporter
    protocol_version = "HTTP/1.1"
    server_version = f"gputop/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        users = self.server.config.users
        if users is not None and not users.let_in(self.headers.get("Authorization")):
            self._answer(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", {"WWW-Authenticate": 'Basic realm="gputop"'})
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            good = self.server.healthy()
            words = b"ok\n" if good else b"no recent reading of the GPUs\n"
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, words)
        elif path == "/":
            self._answer(HTTPStatus.OK, _PAGE, {"Content-Type": "text/html; charset=utf-8"})
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"Not found: try /metrics\n")

    do_HEAD = do_GET

    def _metrics(self) -> None:
        body, headers = self.server.metrics(), {"Content-Type": TEXT_FORMAT, "Vary": "Accept-Encoding"}
        if takes_gzip(", ".join(self.headers.get_all("Accept-Encoding", []))):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._answer(HTTPStatus.OK, body, headers)

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        known = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"} | (headers or {})
        for name, value in known.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
