"""The webhook of an alarm: the facts as JSON, posted."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from gputop import __version__

WEBHOOK_SECONDS: Final = 10.0  # for each of the attempts
ATTEMPTS: Final = 3


def check_url(url: str) -> str:
    """*url*, if something can be posted there. Raises ValueError in words, without the URL: it may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook needs a URL such as https://example.org/hook")
    return url


def post(url: str, known: dict[str, Any]) -> str | None:
    """POST *known* as a JSON object, in up to three attempts. Returns why it failed, in words and without the path of
    *url*, which is a secret with many services. ``text`` is what chat services show."""
    import urllib3  # late: only those who have a webhook need it

    retries = urllib3.Retry(ATTEMPTS - 1, backoff_factor=1, status_forcelist=(429, 502, 503, 504), allowed_methods=None)
    where = f"webhook {urlsplit(url).hostname}"
    with urllib3.PoolManager(retries=retries, timeout=WEBHOOK_SECONDS) as pool:
        try:
            answer = pool.request(
                "POST", url, json=known, headers={"User-Agent": f"gputop/{__version__}"}, redirect=False
            )
        except urllib3.exceptions.MaxRetryError as error:
            return f"{where}: {_cause(error)}"
        except urllib3.exceptions.HTTPError as error:
            return f"{where}: {_reason(error)}"
    return None if answer.status < 300 else f"{where}: {answer.status} {answer.reason or ''}".rstrip()


def _cause(error: Any) -> str:
    return "no answer" if error.reason is None else _reason(error.reason)


def _reason(error: Exception) -> str:
    """The kind of failure; the exceptions' own texts hold the URL."""
    words = {
        "NewConnectionError": "cannot be reached",
        "NameResolutionError": "its name has no address",
        "ConnectTimeoutError": f"no connection within {WEBHOOK_SECONDS:g} s",
        "ReadTimeoutError": f"no answer within {WEBHOOK_SECONDS:g} s",
        "SSLError": "its certificate is not accepted, or it speaks no TLS",
        "ResponseError": "it answers with errors",
        "ProtocolError": "the connection broke",
    }
    return words.get(type(error).__name__, type(error).__name__)
