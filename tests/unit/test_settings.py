"""What is set stays set, and nothing a user wrote into the file is lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.columns import COLUMNS
from gputop.settings import CHART_WINDOWS, DEFAULTS, NAMES, Settings, Thresholds, help_of
from gputop.settings_file import SettingsError, load, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gputop" / "config.toml"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def some_of(ids: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(ids), min_size=1, unique=True).map(tuple)


def rising(most: float) -> st.SearchStrategy[Thresholds | None]:
    numbers = st.floats(min_value=0.5, max_value=most, allow_nan=False)
    return st.none() | st.tuples(numbers, numbers).map(lambda pair: Thresholds(*sorted(pair)))


valid_settings = st.builds(
    Settings,
    refresh=st.floats(min_value=0.1, max_value=60),
    gpus=st.lists(st.sampled_from(["0", "7", "GPU-1234abcd", "0000:65:00.0", "é"]), unique=True).map(tuple),
    temperature_unit=st.sampled_from(["C", "F"]),
    memory_unit=st.sampled_from(["GiB", "MiB"]),
    theme=st.sampled_from(["gputop", "nord", "ansi-16", "名"]),
    color=st.booleans(),
    ascii=st.none() | st.booleans(),
    mouse=st.booleans(),
    show_chart=st.booleans(),
    columns=some_of(tuple(COLUMNS)),
    sort=st.sampled_from(list(COLUMNS)),
    sort_reverse=st.booleans(),
    tree=st.booleans(),
    chart_metrics=some_of(tuple(CHART_METRICS)),
    chart_window=st.sampled_from(CHART_WINDOWS),
    chart_newest_right=st.booleans(),
    threshold_memory=rising(100),
    threshold_utilization=rising(100),
    threshold_temperature=rising(150),
    threshold_power=rising(200),
    leak_idle_minutes=st.integers(1, 10_080),
    leak_gap_mib=st.integers(64, 1 << 20),
    leak_ignore=st.lists(st.sampled_from(["user:ml", "VLLM::", "名 前"]), unique=True).map(tuple),
)


@given(settings=valid_settings)
def test_what_was_saved_is_what_is_loaded(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("config") / "config.toml"
    save(settings, path)
    assert load(path) == (settings, ())


@given(settings=valid_settings)
def test_only_what_differs_from_the_defaults_is_written(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("config") / "config.toml"
    save(settings, path)
    written = tomllib.loads(path.read_text())
    assert set(written) == {name for name in NAMES if getattr(settings, name) != getattr(DEFAULTS, name)}


def test_no_file_is_no_problem(path: Path) -> None:
    assert load(path) == (DEFAULTS, ())


def test_the_first_save_makes_the_directory_and_names_the_file(path: Path) -> None:
    words = save(DEFAULTS.changed(refresh=0.5), path, {"refresh"})
    assert str(path) in words
    assert load(path)[0].refresh == 0.5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_setting_set_back_to_its_default_leaves_the_file(path: Path) -> None:
    save(DEFAULTS.changed(refresh=0.5, tree=True), path)
    save(DEFAULTS.changed(tree=True), path)
    assert tomllib.loads(path.read_text()) == {"tree": True}


def test_unknown_keys_are_kept_and_told_once(path: Path) -> None:
    write(path, 'thmee = "nord"\n[later]\nanswer = 42\n')
    settings, problems = load(path)
    assert settings == DEFAULTS
    assert len(problems) == 1
    assert "thmee" in problems[0] and "later" in problems[0] and "theme meant" in problems[0]
    save(settings.changed(tree=True), path)
    assert tomllib.loads(path.read_text()) == {"thmee": "nord", "later": {"answer": 42}, "tree": True}


def test_a_column_of_a_later_version_is_left_out_but_kept_in_the_file(path: Path) -> None:
    write(path, 'columns = ["pid", "leak", "command"]\n')
    settings, problems = load(path)
    assert settings.columns == ("pid", "command")
    assert len(problems) == 1 and "leak" in problems[0]
    save(settings.changed(columns=("gpu", "pid")), path, {"columns"})
    assert tomllib.loads(path.read_text())["columns"] == ["gpu", "pid", "leak"]


def test_what_the_command_line_asked_for_is_not_saved_with_something_else(path: Path) -> None:
    from_command_line = DEFAULTS.changed(refresh=5.0, color=False)
    save(from_command_line.changed(tree=True), path, {"tree"})
    assert tomllib.loads(path.read_text()) == {"tree": True}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("refresh = 0.01", "10 ms is not between 100 ms and 60 s"),
        ('refresh = "5"', "unit is required"),
        ("refresh = nan", "not a number"),
        ("refresh = true", "not a number"),
        ("mouse = 1", "neither true nor false"),
        ('temperature_unit = "K"', "none of C, F"),
        ("theme = 3", "not a name"),
        ('theme = ""', "not a name"),
        ("columns = []", "at least one"),
        ('columns = "pid"', "not a list"),
        ("columns = [3]", "unknown"),
        ('sort = "size"', "none of"),
        ("chart_window = 61", "none of"),
        ("chart_window = true", "none of"),
        ("leak_idle_minutes = 0", "whole number from 1"),
        ("leak_idle_minutes = 2.5", "whole number"),
        ("leak_gap_mib = true", "not a number"),
        ('leak_ignore = "user:ml"', "not a list"),
        ("gpus = 0", "not a list"),
        ("gpus = [true]", "not a name"),
        ("threshold_memory = [95, 80]", "rising"),
        ("threshold_memory = [80]", "rising"),
        ("threshold_memory = [80, 101]", "at most 100"),
        ('threshold_power = ["a", 2]', "not a number"),
        ('sort = ["pid"]', "none of"),
        ("sort = {a = 1}", "none of"),
    ],
)
def test_a_wrong_value_is_told_in_words_and_the_default_used(path: Path, line: str, said: str) -> None:
    write(path, f"tree = true\n{line}\n")
    settings, problems = load(path)
    assert settings == DEFAULTS.changed(tree=True)
    assert len(problems) == 1
    assert said in problems[0] and line.split()[0] in problems[0] and "is used" in problems[0]


def test_thresholds_can_be_turned_off_and_on(path: Path) -> None:
    save(DEFAULTS.changed(threshold_memory=None, threshold_utilization=(50, 90)), path)
    settings, problems = load(path)
    assert problems == ()
    assert settings.threshold_memory is None and settings.threshold_utilization == (50, 90)


BROKEN = {
    "half a line": b"refresh = ",
    "not TOML": b"<settings/>",
    "twice the same key": b"tree = true\ntree = false\n",
    "latin-1": 'theme = "h\u00e9"'.encode("latin-1"),
    "binary": bytes(range(256)),
    "too deep": b"a = " + b"[" * 100_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_told_in_words_and_never_overwritten_silently(path: Path, content: bytes) -> None:
    write(path, content)
    settings, problems = load(path)
    assert settings == DEFAULTS
    assert len(problems) == 1 and str(path) in problems[0]
    with pytest.raises(SettingsError, match="Not saved"):
        save(settings.changed(tree=True), path)
    assert path.read_bytes() == content
    words = save(settings.changed(tree=True), path, overwrite=True)
    (aside,) = path.parent.glob("config.toml.broken-*")
    assert aside.name in words and aside.read_bytes() == content
    assert load(path) == (DEFAULTS.changed(tree=True), ())


def test_a_broken_file_is_told_with_its_line(path: Path) -> None:
    write(path, "tree = true\n\nrefresh = = 1\n")
    assert "line 3" in load(path)[1][0]


def test_a_byte_order_mark_is_no_problem(path: Path) -> None:
    write(path, b"\xef\xbb\xbftree = true\n")
    assert load(path) == (DEFAULTS.changed(tree=True), ())


def test_a_symbolic_link_stays_one(path: Path, tmp_path: Path) -> None:
    dotfiles = write(tmp_path / "dotfiles" / "gputop.toml", "mouse = false\n")
    path.parent.mkdir()
    path.symlink_to(dotfiles)
    save(load(path)[0].changed(tree=True), path)
    assert path.is_symlink()
    assert tomllib.loads(dotfiles.read_text()) == {"mouse": False, "tree": True}


def test_a_dangling_link_is_filled(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "gputop.toml")
    save(DEFAULTS.changed(tree=True), path)
    assert path.is_symlink() and load(path)[0].tree


def test_the_mode_of_the_file_is_kept(path: Path) -> None:
    write(path, "")
    path.chmod(0o644)
    save(DEFAULTS.changed(tree=True), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_failed_save_leaves_the_old_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "mouse = false\n")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(SettingsError, match="No space left"):
        save(DEFAULTS.changed(tree=True), path)
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]
    assert path.read_text() == "mouse = false\n"


def test_a_place_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SettingsError, match="Not a directory"):
        save(DEFAULTS.changed(tree=True), file / "gputop" / "config.toml")
    with pytest.raises(SettingsError, match="Not saved"):  # as root nothing but a kernel file system refuses
        save(DEFAULTS.changed(tree=True), Path("/proc/gputop/config.toml"))


def test_a_fifo_does_not_hang_and_a_device_is_not_replaced(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    assert "not a regular file" in load(path)[1][0]
    with pytest.raises(SettingsError, match="not a regular file"):
        save(DEFAULTS, path)
    assert load(Path("/dev/null")) == (DEFAULTS, ())
    with pytest.raises(SettingsError, match="not a regular file"):
        save(DEFAULTS.changed(tree=True), Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_directory_in_the_files_place_is_told_in_words(path: Path) -> None:
    path.mkdir(parents=True)
    assert "not a regular file" in load(path)[1][0]
    with pytest.raises(SettingsError):
        save(DEFAULTS, path, overwrite=True)


def test_dashboards_that_save_at_once_keep_each_others_keys(path: Path) -> None:
    changes = {
        "refresh": 0.5,
        "tree": True,
        "mouse": False,
        "sort": "pid",
        "theme": "nord",
        "chart_window": 60,
        "memory_unit": "MiB",
        "temperature_unit": "F",
    }
    saved_by_threads = [
        threading.Thread(target=save, args=(DEFAULTS.changed(**{name: value}), path, {name}))
        for name, value in changes.items()
    ]
    code = "import sys; from pathlib import Path; from gputop.settings_file import save\n"
    code += "from gputop.settings import DEFAULTS; save(DEFAULTS.changed(color=False), Path(sys.argv[1]), {'color'})"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)])
    for thread in saved_by_threads:
        thread.start()
    for thread in saved_by_threads:
        thread.join()
    assert other.wait(30) == 0
    assert load(path) == (DEFAULTS.changed(color=False, **changes), ())
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]


def test_an_unknown_setting_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="no such setting"):
        DEFAULTS.changed(refrsh=1)
    with pytest.raises(ValueError, match="refresh: 50 ms is not between"):
        DEFAULTS.changed(refresh="50ms")


def test_every_setting_says_what_it_is() -> None:
    assert all(help_of(name) for name in NAMES)


def test_the_default_columns_and_the_default_sort_are_columns() -> None:
    assert set(DEFAULTS.columns) <= set(COLUMNS) and DEFAULTS.sort in COLUMNS


def test_comments_order_and_layout_of_the_file_survive_a_save(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = """# what our group agreed on
theme = "nord"   # easier on the eye

# twice a second
refresh = "500ms" # see the wiki
columns = [
    "gpu",   # first
    "pid",
    "user",
]
unknown_to_us = 1 # of a later version

[[alarms]] # the pager
when = "memory > 90%"
"""
    path.write_text(mine)
    settings, problems = load(path)
    assert settings.refresh == 0.5 and len(problems) == 1
    save(settings.changed(refresh=0.25), path, ["refresh"])
    assert path.read_text() == mine.replace('"500ms"', '"250ms"')
    save(settings.changed(refresh=DEFAULTS.refresh), path, ["refresh"])
    assert path.read_text() == mine.replace('refresh = "500ms" # see the wiki\n', "")
    save(settings.changed(tree=True), path, ["tree"])
    assert "# the pager" in path.read_text() and load(path)[0].tree, "a key set anew goes before the tables"


@given(settings=valid_settings)
def test_what_is_saved_into_a_file_with_comments_is_what_is_loaded(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "settings.toml"
    path.write_text('# top\nsort = "pid" # mine\n\n[[alarms]]\nwhen = "memory > 1%"\n')
    save(settings, path)
    assert load(path) == (settings, ())
    assert path.read_text().startswith("# top\n")
