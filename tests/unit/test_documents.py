"""What people read: documents, pictures, benchmarks. It names what the program has: commands, options, keys, settings,
metrics, exit statuses. What the commands do when they are run: tests/pty/test_shown_commands.py."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gputop.commands import COMMANDS
from gputop.commands.shared.parsers import command_module, command_parser, main_parser
from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.columns import COLUMNS
from gputop.outputs.prometheus import SnapshotCollector, XidCounts
from gputop.outputs.prometheus_processes import ProcessText
from gputop.sampling.one_shot import sample
from gputop.settings import CHART_WINDOWS, DEFAULTS, NAMES, help_of
from gputop.sources.simulated import simulated_machine
from tests.documents import (
    DOCS,
    ENGLISH,
    PAGES,
    ROOT,
    arguments_of,
    commands_in,
    keys_in,
    numbers_in,
    spans_in,
    text_of,
)

READ = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("screenshots/*.svg"),
    *ROOT.glob("benchmarks/**/*.md"),
)


def test_no_document_or_picture_shows_a_path_of_the_machine_it_was_made_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {shown}"
        for path in READ
        for shown in re.findall(r"/(?:work|root|tmp/tmp\w*|var/tmp/\w+)/[\w.]*", path.read_text())
    ]
    assert not found


# ------------------------------------------------------------------------- README and docs/


def test_the_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_picture_is_there(page: str) -> None:
    folder = (ROOT / page).parent
    targets = re.findall(r"\]\(([^)\s]+)\)", text_of(page))
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [file for file in files if file and not (folder / file).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_shown_command_is_understood(page: str) -> None:
    refused = {}
    for command in commands_in(page) + spans_in(page):
        arguments = arguments_of(command)[1:]
        name = arguments[0] if arguments and arguments[0] in COMMANDS else None
        said = io.StringIO()
        if len(arguments) == 1 and arguments[0] in COMMANDS:
            continue  # only named
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                if name is None:
                    main_parser().parse_args(arguments)
                else:
                    module = command_module(name)
                    prepared = getattr(module, "prepare", list)(arguments[1:])
                    command_parser(name, module).parse_args(prepared)
        except SystemExit as end:
            if end.code:
                refused[command] = said.getvalue().splitlines()[-1]
    assert refused == {}


#: Options of Docker, Podman and Prometheus that the pages name.
_FOREIGN = {"--pid", "--device", "--storage"}


@pytest.mark.parametrize("page", PAGES)
def test_every_option_named_in_the_text_is_there(page: str) -> None:
    parsers = [main_parser(), *(command_parser(name, command_module(name)) for name in COMMANDS)]
    known = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    named = set(re.findall(r"(?<!`)`(--[a-z][a-z-]*)", text_of(page)))
    assert named - known - _FOREIGN == set()


def as_toml(name: str) -> str:
    default = getattr(DEFAULTS, name)
    match default:
        case None:
            return "unset" if name == "ascii" else "`[]`"
        case bool():
            return f"`{str(default).lower()}`"
        case str():
            return f'`"{default}"`'
        case tuple():
            return "`[" + ", ".join(f'"{x}"' if isinstance(x, str) else f"{x:g}" for x in default) + "]`"
    return '`"1s"`' if name == "refresh" else f"`{default}`"


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_told_with_its_default(name: str) -> None:
    assert f"| `{name}` | {as_toml(name)} | {help_of(name)} |" in text_of("docs/settings.md")


def test_no_setting_is_told_that_is_not_there() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| ", text_of("docs/settings.md"), re.MULTILINE)) == set(NAMES)
    for page in PAGES:
        named = re.findall(r"(?:the setting|设置项) `(\w+)`", text_of(page))
        assert set(named) <= set(NAMES), page


def test_every_column_metric_and_window_is_told() -> None:
    words = set(re.findall(r"[\w]+", text_of("docs/settings.md")))
    assert {*COLUMNS, *CHART_METRICS, *map(str, CHART_WINDOWS)} <= words


def test_every_option_is_told() -> None:
    options = set(re.findall(r"--[a-z][a-z-]+", main_parser().format_help())) - {"--seed"}
    assert {option for option in options if option not in text_of("docs/scripts.md")} == set()


def test_every_exit_status_is_told() -> None:
    told = set(re.findall(r"^\| (\d+) \|", text_of("docs/scripts.md"), re.MULTILINE))
    assert set(re.findall(r"\b(\d+) [a-z]", main_parser().epilog or "")) <= told


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith("dashboard.md")])
def test_every_key_is_told_and_no_other(page: str) -> None:
    from gputop.ui.keys import KEYS

    told = keys_in(page)
    assert {key.shown for key in KEYS if not told & set(key.shown.split())} == set()
    known = {word for key in KEYS for word in key.shown.split()} | {"^P"}  # the command palette is Textual's
    assert told - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_named_is_exported(page: str) -> None:
    named = set(re.findall(r"\bgputop_[a-z_]+[a-z]\b", text_of(page)))
    if named:
        machine = simulated_machine("mig")
        registry = CollectorRegistry(auto_describe=False)
        made, _ = sample(machine.source, machine.host, lambda: None)
        registry.register(SnapshotCollector(lambda: made, XidCounts(), clock=lambda: made.taken_at))
        exported = generate_latest(registry).decode() + ProcessText().render(made)
        assert named <= set(re.findall(r"\bgputop_\w+", exported))


def test_json_has_every_key_that_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "--once", "--json", "--demo=mig"],
        cwd=ROOT, env=os.environ | {"XDG_CONFIG_HOME": "/nonexistent"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    section = text_of("docs/scripts.md").split("\n## JSON")[1]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", section)) - {"null", "false"}
    assert {name for name in named if f'"{name}"' not in done.stdout} == set()


#: Questions that came up again and again in other programs' trackers, and the word one would search for.
QUESTIONS = {
    "nvtop#318, nvtop#124, nvtop#291": ("No GPU to monitor", "troubleshooting.md"),
    "nvtop#95": ("version mismatch", "troubleshooting.md"),
    "nvitop#134, nvitop#152": ("No Such Process", "troubleshooting.md"),
    "nvtop#149": ("wrong pid", "containers.md"),
    "nvtop#109": ("utilization of processes", "wsl.md"),
    "nvtop#432": ("N/A memory", "troubleshooting.md"),
    "nvtop#449": ("Spark", "troubleshooting.md"),
    "nvtop#256": ("MIG", "troubleshooting.md"),
    "nvtop#198, nvitop#3, nvitop#98, nvitop#135": ("Garbled", "troubleshooting.md"),
    "nvtop#167": ("nouveau", "troubleshooting.md"),
    "nvitop#128": ("persistenced", "troubleshooting.md"),
    "nvtop#225": ("Jetson", "troubleshooting.md"),
}


@pytest.mark.parametrize("issue", QUESTIONS)
def test_what_people_ask_of_other_programs_is_found_by_one_search(issue: str) -> None:
    word, page = QUESTIONS[issue]
    assert word in text_of(f"docs/{page}")


# ------------------------------------------------------------------------- 简体中文


@pytest.mark.parametrize("page", ENGLISH)
def test_the_chinese_page_has_the_commands_keys_and_numbers_of_the_english_one(page: str) -> None:
    chinese = ENGLISH[page]
    assert commands_in(chinese) == commands_in(page)
    assert set(spans_in(chinese)) == set(spans_in(page))
    assert keys_in(chinese) == keys_in(page)
    assert numbers_in(chinese) == numbers_in(page)


def test_every_page_is_in_the_index() -> None:
    index = text_of("docs/README.md")
    assert [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and page.name not in index] == []
