"""TLS and passwords of the exporter, by the file that Prometheus' own exporters read (exporter-toolkit's web.config).

The subset understood here; anything else in the file is refused, so that nobody takes it for granted:

    tls_server_config:
      cert_file: server.crt        # paths are relative to this file's directory
      key_file: server.key
      client_ca_file: ca.crt       # with client_auth_type
      client_auth_type: RequireAndVerifyClientCert   # or NoClientCert
      min_version: TLS12           # or TLS13
    basic_auth_users:
      prometheus: $2y$10$…         # bcrypt: htpasswd -nBC 10 "" | tr -d ':'
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gputop.model import clean_text

_TLS_KEYS: Final = frozenset(("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version"))
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_NOBODY: Final = b"$2b$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"  # for names that nobody has
_REMEMBERED: Final = 64
NEEDS: Final = "needs PyYAML and bcrypt: pip install 'gputop-tui[web]'"


class WebConfigError(Exception):
    """The file cannot be used; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    """None: no TLS, no passwords."""

    tls: ssl.SSLContext | None = None
    users: PasswordFile | None = None


def load(path: Path) -> WebConfig:
    """What *path* says. Raises WebConfigError in words."""
    try:
        import bcrypt  # noqa: F401  (late, and an extra: only those who have such a file need them)
        import yaml
    except ImportError:
        raise WebConfigError(f"{path}: {NEEDS}") from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WebConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WebConfigError(f"{path} is not YAML: {clean_text(str(error), 200)}") from None
    content = _table(path, "the file", {} if content is None else content)
    _only(path, "", content, frozenset(("tls_server_config", "basic_auth_users")))
    try:
        tls = _tls(path, content["tls_server_config"]) if content.get("tls_server_config") else None
    except OSError as error:  # ssl.SSLError is one
        raise WebConfigError(f"{path}: tls_server_config: {error.strerror or error}") from None
    users = content.get("basic_auth_users")
    return WebConfig(tls, PasswordFile(_hashes(path, users)) if users else None)


def _tls(path: Path, content: Any) -> ssl.SSLContext:
    where = "tls_server_config"
    content = _table(path, where, content)
    _only(path, f"{where}: ", content, _TLS_KEYS)
    missing = [key for key in ("cert_file", "key_file") if not content.get(key)]
    if missing:
        raise WebConfigError(f"{path}: {where}: {' and '.join(missing)} missing")
    version = content.get("min_version", "TLS12")
    if version not in _VERSIONS:
        raise WebConfigError(f"{path}: {where}: min_version is TLS12 or TLS13")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version]
    files = {
        key: path.parent / str(content[key]) for key in ("cert_file", "key_file", "client_ca_file") if content.get(key)
    }
    for file in files.values():
        os.close(os.open(file, os.O_RDONLY))  # ssl's own message would not name it
    context.load_cert_chain(files["cert_file"], files["key_file"])
    kind = content.get("client_auth_type", "NoClientCert")
    if kind == "RequireAndVerifyClientCert" and "client_ca_file" in files:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files["client_ca_file"])
    elif kind != "NoClientCert" or "client_ca_file" in files:
        raise WebConfigError(
            f"{path}: {where}: client_auth_type is NoClientCert, or RequireAndVerifyClientCert with a client_ca_file"
        )
    return context


def _hashes(path: Path, users: Any) -> dict[str, bytes]:
    hashes = {}
    for name, hash_ in _table(path, "basic_auth_users", users).items():
        if not isinstance(hash_, str) or not hash_.startswith(("$2a$", "$2b$", "$2y$")) or len(hash_) != 60:
            raise WebConfigError(f"{path}: basic_auth_users: {clean_text(str(name), 60)}: not a bcrypt hash ($2y$…)")
        hashes[str(name)] = hash_.encode()
    return hashes


def _table(path: Path, where: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise WebConfigError(f"{path}: {where}: keys and values are wanted")
    return content


def _only(path: Path, where: str, content: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = [clean_text(str(key), 60) for key in content if key not in known]
    if unknown:
        raise WebConfigError(
            f"{path}: {where}{', '.join(unknown)}: not supported; there are {', '.join(sorted(known))}"
        )


class PasswordFile:
    """Names and bcrypt hashes. bcrypt is slow on purpose, so what was right once is remembered, as a keyed digest."""

    def __init__(self, hashes: Mapping[str, bytes]) -> None:
        self._hashes = dict(hashes)
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._one_at_a_time = threading.Lock()  # guessing may cost no more than one core

    def let_in(self, header: str | None) -> bool:
        """Whether an Authorization *header* has the name and password of one of them."""
        import bcrypt

        scheme, _, code = (header or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(code.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        digest = hmac.digest(self._key, name + b":" + password, hashlib.sha256)
        if digest in self._right:
            return True
        known = self._hashes.get(name.decode("utf-8", "replace"))
        with self._one_at_a_time:
            right = bcrypt.checkpw(password[:72].replace(b"\0", b""), known or _NOBODY)
        if not (right and known and colon):
            return False
        if len(self._right) >= _REMEMBERED:
            self._right.clear()
        self._right.add(digest)
        return True
