"""What can be set about leaks on F2."""

from __future__ import annotations

import pytest

from gputop.settings import DEFAULTS, Settings
from gputop.ui.settings.leak_options import Amount, Ignored, leak_options

IDLE = Amount("leak_idle_minutes", "Idle after", (5, 30, 60), "min", "")


def test_minutes_step_through_presets_and_one_of_its_own() -> None:
    assert IDLE.shown(DEFAULTS) == "30 min"
    assert IDLE.step(DEFAULTS, 1).leak_idle_minutes == 60
    own = IDLE.typed(DEFAULTS, "45 min")
    assert own.leak_idle_minutes == 45 and IDLE.shown(own) == "45 min"
    assert IDLE.step(own, -1).leak_idle_minutes == 30


@pytest.mark.parametrize("text", ["soon", "", "0", "2.5", "-3", "inf"])
def test_nonsense_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        IDLE.typed(DEFAULTS, text)


def test_the_ignore_list_is_typed_with_commas() -> None:
    option = Ignored()
    settings = option.typed(DEFAULTS, " user:ml,VLLM:: , ,user:ml")
    assert settings.leak_ignore == ("user:ml", "VLLM::")
    assert option.typing(settings) == option.shown(settings) == "user:ml, VLLM::"
    assert option.shown(option.typed(settings, "")) == "nobody"
    assert option.press(settings) is None, "a value is to be typed"


def test_all_of_them_can_be_reset() -> None:
    changed = Settings(leak_idle_minutes=7, leak_stopped_minutes=7, leak_gap_mib=77, leak_ignore=("x",))
    for option in leak_options():
        assert not option.is_default(changed)
        changed = option.reset(changed)
    assert changed == DEFAULTS
