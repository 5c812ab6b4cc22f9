"""PromQL as text: quoted values, patterns, and the few shapes that are used again and again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def quoted(text: str) -> str:
    """A string literal: whatever is in *text*, it stays inside."""
    return json.dumps(text, ensure_ascii=False).replace("\ufffd", r"\ufffd")  # which its lexer takes for broken UTF-8


def pattern(text: str) -> str:
    """*text* itself as a regular expression (RE2)."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def any_of(names: Iterable[str]) -> str:
    """A regular expression for any of *names*."""
    return "|".join(map(pattern, names))


def selector(metric: str, *matchers: str) -> str:
    """``metric{a="b"}``; empty matchers are left out."""
    return f"{metric}{{{','.join(matcher for matcher in matchers if matcher)}}}"


def tagged(tag: str, expression: str) -> str:
    """*expression* with the label ``q``, by which the parts of an answer to a union are told apart."""
    return f'label_replace({expression},"q",{quoted(tag)},"","")'


def union(expressions: Iterable[str]) -> str:
    return " or ".join(expressions)
