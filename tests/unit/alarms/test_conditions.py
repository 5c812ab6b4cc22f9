"""Conditions: what people write is understood as they mean it, or refused with words that help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.alarms.condition import Condition, GpuLostCondition, Growth, ProcessGone, Scope, Threshold, XidSeen
from gputop.alarms.conditions import ConditionError, parse, parse_rule
from gputop.model import GpuProcess
from gputop.settings import DEFAULTS, AlarmRule
from gputop.settings_file import load, save
from tests.unit.sampling.snapshots import process

GIB = 1024**3


def comparison(text: str) -> Threshold:
    (clause,) = parse(text).clauses
    assert isinstance(clause, Threshold)
    return clause


def run_by(user: str, command: str) -> GpuProcess:
    one = process(1)
    assert one.host is not None
    return replace(one, host=replace(one.host, user=user, command=command))


@pytest.mark.parametrize(
    ("text", "scope", "unit", "level"),
    [
        ("memory > 90%", Scope.GPU, "percent", 90),
        ("memory>120GiB", Scope.GPU, "bytes", 120 * GIB),
        ("MEM >= 1.5 TB", Scope.GPU, "bytes", 1536 * GIB),
        ("free memory < 2G", Scope.GPU, "bytes", 2 * GIB),
        ("unattributed > 512MiB", Scope.GPU, "bytes", GIB / 2),
        ("unattributed memory > 3%", Scope.GPU, "percent", 3),
        ("utilization < 5%", Scope.GPU, "percent", 5),
        ("utilization < 5", Scope.GPU, "percent", 5),
        ("sm active < 5 %", Scope.GPU, "percent", 5),
        ("temperature >= 85", Scope.GPU, "celsius", 85),
        ("temperature > 185F", Scope.GPU, "celsius", 85),
        ("memory temperature > 95°C", Scope.GPU, "celsius", 95),
        ("power > 650W", Scope.GPU, "watts", 650),
        ("power > 95%", Scope.GPU, "percent", 95),
        ("process memory > 20GiB", Scope.PROCESS, "bytes", 20 * GIB),
        ("process utilization > 50%", Scope.PROCESS, "percent", 50),
        ("user:ml memory > 10%", Scope.PROCESS, "percent", 10),
        ("cpu > 300%", Scope.PROCESS, "percent", 300),
        ("host memory > 100GiB", Scope.PROCESS, "bytes", 100 * GIB),
        ("idle > 30min", Scope.PROCESS, "seconds", 1800),
        # as on the prompt of the screen:
        ("mem>10G", Scope.GPU, "bytes", 10 * GIB),
        ("mem>10G user:ml", Scope.PROCESS, "bytes", 10 * GIB),
        ("bw>50", Scope.PROCESS, "percent", 50),
        ("host>1.5G", Scope.PROCESS, "bytes", 1.5 * GIB),
        ("type:C pid:12 !user:root sm < .5", Scope.PROCESS, "percent", 0.5),
        ("temperature > -5C", Scope.GPU, "celsius", -5),
    ],
)
def test_a_comparison_is_of_the_quantity_in_the_unit_it_names(text: str, scope: Scope, unit: str, level: float) -> None:
    clause = comparison(text)
    assert (parse(text).scope, clause.unit.key, clause.level) == (scope, unit, pytest.approx(level))


def test_it_clears_a_few_percent_below_its_level_or_where_it_is_told() -> None:
    assert comparison("memory > 90%").clear == pytest.approx(87.3)
    assert comparison("free memory < 10GiB").clear == pytest.approx(10.3 * GIB)
    assert comparison("memory > 90% clear 80%").clear == 80
    assert parse("memory > 90%", clear="85%").clauses[0].clear == 85  # type: ignore[union-attr]
    assert parse("memory > 90% clear 80%", clear="85%").clauses[0].clear == 80  # type: ignore[union-attr]


def test_a_level_to_clear_at_goes_to_the_one_clause_without() -> None:
    condition = parse("temperature > 80C clear 70C and memory > 50%", clear="40%")
    assert [clause.clear for clause in condition.clauses] == [70, 40]  # type: ignore[union-attr]
    with pytest.raises(ConditionError, match="which level is 40% for"):
        parse("temperature > 80C and memory > 50%", clear="40%")


def test_how_long_it_must_hold_is_in_the_condition_or_beside_it() -> None:
    assert parse("memory > 90% for 10s").hold_seconds == 10
    assert parse("memory > 90%", hold_seconds=90).hold_seconds == 90
    assert parse("memory > 90% for 10s", hold_seconds=90).hold_seconds == 10
    assert parse("memory > 90%", hold_seconds=90).text == "memory > 90% for 90s"  # a rule's name tells it whole


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("gpu lost", GpuLostCondition()),
        ("xid", XidSeen(None)),
        ("xid 48, 79", XidSeen(frozenset({48, 79}))),
        ("pid 1234 gone", ProcessGone(pid=1234)),
        ("process vllm gone", ProcessGone(name="vllm")),
        ('process "python train.py" gone', ProcessGone(name="python train.py")),
        ("memory grows > 1GiB/10min", Growth(GIB, GIB / 2, 600)),
        ("grows > 1GiB/min", Growth(GIB, GIB / 2, 60)),
        ("memory grows > 2GiB/1h clear 512MiB", Growth(2 * GIB, GIB / 2, 3600)),
    ],
)
def test_what_is_no_comparison(text: str, clause: object) -> None:
    assert parse(text).clauses == (clause,)


def test_terms_side_by_side_must_all_hold_as_on_the_prompt() -> None:
    assert parse("mem>10G !sm>50 clear 60").clauses == parse("process memory > 10GiB and sm <= 50% clear 60%").clauses


def test_several_gpus_and_users_are_named_as_on_the_prompt() -> None:
    condition = parse("gpu:0,2 !user:root,ml mem>10G")
    assert condition.selection.gpus == ("0", "2")
    assert [condition.selection.has(run_by(user, "x")) for user in ("root", "ml", "cv")] == [False, False, True]


def test_of_two_users_the_last_counts_but_all_that_are_excluded_are() -> None:
    listed = [run_by(user, "x") for user in ("root", "ml", "cv")]
    last = parse("user:root user:ml gpu:0 gpu:1 mem>10G").selection
    assert ([last.has(one) for one in listed], last.gpus) == ([False, True, False], ("1",))
    none_of = parse("!user:root !user:ml mem>10G").selection
    assert [none_of.has(one) for one in listed] == [False, False, True]


def test_filters_narrow_it_down() -> None:
    condition = parse('gpu:GPU-12345678 user:ml command:"train.py --big" memory > 1GiB')
    assert condition.scope is Scope.PROCESS
    assert condition.selection.gpus == ("GPU-12345678",)
    listed = [run_by("ml", "python train.py --big"), run_by("mlops", "python train.py --big"), run_by("ml", "train.py")]
    assert [condition.selection.has(one) for one in listed] == [True, False, False]
    assert parse("gpu:0 gpu lost").selection.gpus == ("0",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a condition is needed, such as memory > 90%"),
        ("memory", "not understood"),
        ("memory > 90", "90 needs a unit: 90% or 90GiB"),
        ("memry > 90%", "did you mean memory?"),
        ("> 90%", "no such quantity; there are"),
        ("temperature > 90%", "temperature has no percentage"),
        ("temperature > hot", "not a temperature such as 80C"),
        ("process temperature > 80", "temperature is a GPU's, not a process's"),
        ("memory > 90% and process memory > 1GiB", "process goes at the beginning"),
        ("memory > 90% clear 95%", "it would clear at 95%, above 90%"),
        ("utilization < 5% clear 4%", "it would clear at 4%, below 5%"),
        ("memory > 90% clear 80GiB", "not a value such as 90%"),
        ("memory grows > 1GiB/s", "a trend needs a window of 1 min to 24 h"),
        ("memory grows > 1/10min", "1 needs a unit"),
        ("idle > 30", "the unit is required"),
        ("pid x gone", "'x' is not a pid"),
        ("process gpu lost", "about a GPU"),
        ("memory > 90% or temperature > 80", "'or' is not supported"),
        ("memory > 9" + "0" * 300, "longer than"),
        ("mem>10", "10 needs a unit: 10% or 10GiB"),
        ("gpu:0 memry > 90%", "at character 7: memry: no such quantity (did you mean memory?)"),
        ("memory > 90% and", "at character 14: 'and' is not understood"),
        ("memory >", "a value is missing, such as memory > 10GiB"),
        ("train.py mem>10G", "'train.py' is not understood; to search command lines, write command:train.py"),
        ("gpu:0", "nothing is compared"),
        ("!gpu:0 memory > 90%", "name the GPUs you mean: gpu:0,1"),
        ("memory grows > 1GiB", "a trend is written memory grows > 1GiB/10min"),
        ("type:X mem>10G", "the types are C (compute), G (graphics) and M (MPS)"),
    ],
)
def test_what_is_not_understood_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert said in str(caught.value)


WORDS = st.sampled_from(
    "process memory power idle xid pid gone grows and for clear gpu: user: > < >= 90% 1GiB 10s /".split()
)


@given(st.text(max_size=80) | st.lists(WORDS, max_size=8).map(" ".join))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        said: object = parse(text)
    except ConditionError as error:
        said = str(error)
    if isinstance(said, Condition):
        assert said.clauses
    else:
        assert isinstance(said, str) and "\n" not in said and "\x1b" not in said


@given(st.floats(1, 99), st.floats(0, 1), st.sampled_from([">", ">=", "<", "<="]))
def test_what_raises_an_alarm_never_clears_it(level: float, share: float, sign: str) -> None:
    clause = comparison(f"utilization {sign} {level:.3f}%")
    for value in (clause.level, clause.clear, 100 * share):
        assert clause.stays(value) or not clause.holds(value)


def test_alarms_of_the_settings_file(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "config.toml"
    path.write_text(
        '[[alarms]]\nwhen = "memory > 90%"\nfor = "10s"\nclear = "85%"\nrun = "notify"\n\n[[alarms]]\nwhen = "xid"\n'
    )
    settings, problems = load(path)
    assert problems == ()
    assert settings.alarms == (AlarmRule("memory > 90%", "10s", "85%", "notify"), AlarmRule("xid"))
    condition = parse_rule(settings.alarms[0])
    assert (condition.hold_seconds, condition.clauses[0].clear) == (10, 85)  # type: ignore[union-attr]
    save(settings.changed(tree=True), path, {"tree", "alarms"})
    assert load(path) == (settings.changed(tree=True), ())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("x = 1", "number 1 has no condition"),
        ('when = "xid"\nfro = "1s"', "number 1: fro: no such key"),
        ('when = "xid"\nfor = 3', "number 1: for is not text"),
    ],
)
def test_a_wrong_alarm_in_the_settings_file_is_told(table: str, said: str, tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "config.toml"
    path.write_text(f"[[alarms]]\n{table}\n")
    settings, problems = load(path)
    assert settings == DEFAULTS
    assert said in " ".join(problems)
