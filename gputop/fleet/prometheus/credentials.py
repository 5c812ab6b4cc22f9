"""How gputop shows an engine who it is: from the environment or the settings file, never from the command line, where
every user of the machine can read it.

The environment wins: GPUTOP_PROMETHEUS_TOKEN, …_TOKEN_FILE, …_USER, …_PASSWORD, …_PASSWORD_FILE, …_CA_FILE,
…_CERT_FILE, …_KEY_FILE, …_HEADERS (lines ``Name: value``). In the settings: the keys ``fleet_*``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gputop.sources.source import SourceError

if TYPE_CHECKING:
    from gputop.settings import Settings

_PREFIX: Final = "GPUTOP_PROMETHEUS_"
_SECRET_BYTES_MOST: Final = 64 * 1024
_HEADER: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x20-\x7e]*)")


@dataclass(frozen=True, slots=True)
class Credentials:
    """*headers* hold what identifies us; they go to the engine's own host and nowhere else. Not in ``repr``."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def credentials_of(settings: Settings, environment: Mapping[str, str]) -> Credentials:
    """Raises SourceError where a file cannot be read or a header is none."""

    def asked(name: str, setting: str) -> str:
        return environment.get(_PREFIX + name, "") or setting

    headers = dict(map(_header, settings.fleet_headers))
    headers |= dict(map(_header, filter(None, map(str.strip, environment.get(_PREFIX + "HEADERS", "").split("\n")))))
    token = environment.get(_PREFIX + "TOKEN") or _secret(asked("TOKEN_FILE", settings.fleet_token_file))
    user = asked("USER", settings.fleet_user)
    password = environment.get(_PREFIX + "PASSWORD") or _secret(asked("PASSWORD_FILE", settings.fleet_password_file))
    if token:
        headers["Authorization"] = f"Bearer {_printable(token, 'the token')}"
    elif user:
        pair = f"{user}:{password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return Credentials(
        headers,
        _path(asked("CA_FILE", settings.fleet_ca_file)),
        _path(asked("CERT_FILE", settings.fleet_cert_file)),
        _path(asked("KEY_FILE", settings.fleet_key_file)),
    )


def _header(line: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise SourceError(f"{line[:40]!r} is not a header such as 'X-Scope-OrgID: team'", 2, transient=False)
    return match[1], match[2]


def _printable(secret: str, what: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", secret):
        raise SourceError(f"{what} has characters that no header may have", 2, transient=False)
    return secret


def _secret(path: str) -> str | None:
    """The text of a file, without the line's end."""
    if not path:
        return None
    try:
        with open(Path(path).expanduser(), "rb") as file:
            return file.read(_SECRET_BYTES_MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SourceError(f"{path}: {reason}", 2, transient=False) from None


def _path(path: str) -> str | None:
    """The path of a file that can be read."""
    if not path:
        return None
    found = Path(path).expanduser()
    try:
        with open(found, "rb"):
            return str(found)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}", 2, transient=False) from None
