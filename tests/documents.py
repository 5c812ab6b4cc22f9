"""README.md and docs/: their pages, and what is shown in them. For the tests that hold them against the program."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Pages that exist in Chinese too.
ENGLISH = {
    "README.md": "README.zh-CN.md",
    **{f"docs/{page.name}": f"docs/zh/{page.name}" for page in sorted((DOCS / "zh").glob("*.md"))},
}
PAGES = ("README.md", "README.zh-CN.md", *(str(page.relative_to(ROOT)) for page in sorted(DOCS.rglob("*.md"))))

_MAGIC = "gputop recording"  # what a recording begins with
_PLACEHOLDER = re.compile(r"…|\.\.\.|[\[|]|(?<![\w$=\'])[A-Z]{2,}(?![\w=])")


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def _shown(page: str) -> list[str]:
    """The lines of the blocks that are for a shell."""
    return [line for block in re.findall(r"```sh\n(.*?)```", text_of(page), re.DOTALL) for line in block.splitlines()]


def _without_the_rest(line: str) -> str:
    """The gputop command of *line*: without comment, pipe, redirection and assignments before it; else empty."""
    line = re.sub(r"^(?:[A-Z_]+=\S* )+", "", line.strip())
    if not re.match(r"gputop\b(?!\.)", line):
        return ""
    lexer = shlex.shlex(line, posix=False, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|>;&"):
            break
        words.append(word)
    return " ".join(words)


def commands_in(page: str) -> list[str]:
    """The gputop commands of the blocks, in their order."""
    return [command for line in _shown(page) if (command := _without_the_rest(line))]


def spans_in(page: str) -> list[str]:
    """The gputop commands in the text; those with placeholders (FILE, ...) are none."""
    spans = re.findall(r"(?<!`)`(gputop [^`\n]+)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))
    spans = [span for span in spans if span != _MAGIC and not _PLACEHOLDER.search(span)]
    return [command for span in spans if (command := _without_the_rest(span))]


def arguments_of(command: str) -> list[str]:
    return shlex.split(command)


def keys_in(page: str) -> set[str]:
    """The keys of the table under the heading Keys (按键)."""
    found = re.search(r"\n## (?:Keys|按键)\n(.*?)\n## ", text_of(page) + "\n## ", re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", found[1], re.MULTILINE) if found else []
    return {key.replace("Ctrl+", "^") for row in rows for key in re.findall(r"`([^`]+)`", row)}


def numbers_in(page: str) -> list[str]:
    """All numbers, sorted: a translation moves them about."""
    text = re.sub(r"\]\([^)]*\)", "]", text_of(page))
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))
