"""Keys of `--json` and of recordings: the field's name, or the one it had when the format was fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def formerly(key: str) -> Mapping[str, str]:
    """The ``metadata`` of a dataclass field that goes on being written as *key*."""
    return {"json_key": key}


def json_key(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("json_key", field.name))
