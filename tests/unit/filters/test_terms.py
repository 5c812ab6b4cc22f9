"""One grammar: both spellings are read, and what is wrong is said with where it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.filters.comparison import comparison_of
from gputop.filters.errors import FilterError
from gputop.filters.field import Field, FieldRegistry, unknown_field
from gputop.filters.gpu_fields import GPU_FIELDS
from gputop.filters.process_fields import PROCESS_FIELDS
from gputop.filters.quantities import BYTES, Unit, number_parser
from gputop.filters.terms import Grammar
from tests.unit.sampling.snapshots import GIB, process

GRAMMAR = Grammar(("user", "gpu"), PROCESS_FIELDS, GPU_FIELDS)


def read(text: str) -> list[tuple[str, str, str]]:
    return [(term.name, term.operator, term.value) for term in GRAMMAR.terms(text)]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("mem>10G user:ml", [("mem", ">", "10G"), ("user", ":", "ml")]),
        ("memory > 40 GiB user:ml", [("memory", ">", "40 GiB"), ("user", ":", "ml")]),
        ("MEMORY>=40 gib", [("memory", ">=", "40 gib")]),
        ("host  memory <5% python", [("host memory", "<", "5%"), ("", "", "python")]),
        ("host mem>10G", [("", "", "host"), ("mem", ">", "10G")]),
        ("gpu memory > 1G gpu:0", [("gpu memory", ">", "1G"), ("gpu", ":", "0")]),
        ('user:"a b" x', [("user", ":", "a b"), ("", "", "x")]),
        ("temperature > 95 °C", [("temperature", ">", "95 °C")]),
        ("sm>50 % w", [("sm", ">", "50 %"), ("", "", "w")]),
        ("http://host:80/a a>b", [("", "", "http://host:80/a"), ("", "", "a>b")]),
        ("mem> python", [("mem", ">", ""), ("", "", "python")]),  # half typed in front of a word
        ("mem > user:ml", [("mem", ">", ""), ("user", ":", "ml")]),
        ("mem>= sm>5", [("mem", ">=", ""), ("sm", ">", "5")]),
        ("mem> 5G", [("mem", ">", "5G")]),
        ("temperature > hot", [("temperature", ">", "hot")]),
        ("memry>10G", [("memry", ">", "10G")]),
        ("!", [("", "", "")]),
        ("u\u017fer:a \u017fm>5", [("", "", "u\u017fer:a"), ("", "", "\u017fm>5")]),  # a long s is no s
        ("a!", [("", "", "a!")]),
        ("", []),
    ],
)
def test_what_a_text_is_read_as(text: str, terms: list[tuple[str, str, str]]) -> None:
    assert read(text) == terms


@given(
    st.text(max_size=40) | st.lists(st.sampled_from("mem host memory > 1 GiB ! : user: sm % a".split())).map(" ".join)
)
def test_every_character_but_the_spaces_between_is_in_one_term(text: str) -> None:
    position = 0
    for term in GRAMMAR.terms(text):
        assert term.text and text[term.position :].startswith(term.text)
        assert not text[position : term.position].strip()
        position = term.position + len(term.text)
    assert not text[position:].strip()


@pytest.mark.parametrize("text", ["mem>10G", "memory > 10GiB", "memory>10240 MiB", "gpu-mem > 10 G", "MEM >10g"])
def test_both_spellings_mean_the_same(text: str) -> None:
    (term,) = GRAMMAR.terms(text)
    field = GPU_FIELDS.get(term.name)
    assert field is not None
    comparison = comparison_of(term, field)
    assert (comparison.field.label, comparison.unit, comparison.level) == ("memory", BYTES, 10 * GIB)


def test_the_opposite_of_a_comparison_does_not_hold_for_what_is_unknown() -> None:
    (term,) = GRAMMAR.terms("!mem>10G")
    field = PROCESS_FIELDS.get("mem")
    assert field is not None
    test = comparison_of(term, field).test()
    answers = [test(process(1, memory_bytes=bytes_), None, None) for bytes_ in (10 * GIB, 11 * GIB, None)]
    assert answers == [True, False, False]


def test_a_share_of_memory_is_not_known_without_the_size_of_the_gpu() -> None:
    (term,) = GRAMMAR.terms("mem>25%")
    field = PROCESS_FIELDS.get("mem")
    assert field is not None
    test = comparison_of(term, field).test()
    half = process(1, memory_bytes=10 * GIB)
    assert [test(half, None, 20 * GIB), test(half, None, 80 * GIB), test(half, None, None)] == [True, False, False]


def test_an_error_says_where_it_is_and_what_may_be_meant() -> None:
    error = unknown_field("memry", (GPU_FIELDS,), 7)
    assert (str(error), error.position) == ("memry: no such quantity (did you mean memory?)", 7)
    (_, term) = GRAMMAR.terms("python mem>ten")
    field = GPU_FIELDS.get("mem")
    assert field is not None
    with pytest.raises(FilterError, match="'ten' is not a size such as 512M or 10GiB") as caught:
        comparison_of(term, field)
    assert caught.value.position == 7


def test_fields_of_other_things_are_given_from_outside() -> None:
    """As of the machines of a cluster."""
    count = Unit("count", "", "4", number_parser("", "4"), lambda value: f"{value:.0f}")
    fields: FieldRegistry[[dict[str, float]]] = FieldRegistry(
        (Field("free GPUs", ("free",), {count: lambda machine: machine.get("free")}),)
    )
    free, model = Grammar(("model", "state"), fields).terms("free>=4 model:h100,h200")
    field = fields.get(free.name)
    assert field is not None and model.values == ("h100", "h200")
    test = comparison_of(free, field).test()
    assert [test({"free": 4}), test({"free": 3}), test({})] == [True, False, False]
    (wrong,) = Grammar((), fields).terms("free>=4G")
    with pytest.raises(FilterError, match="'4G' is not a value such as 4"):
        comparison_of(wrong, field)
