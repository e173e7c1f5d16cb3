"""The new-token ratio."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.roles.scheduler.ratio import CLIP, FLOOR, SHARE, START, STEPS, NewTokenRatio, expected_tokens


def test_the_ratio_sinks_to_its_floor() -> None:
    ratio = NewTokenRatio()
    assert ratio.value == START
    for _ in range(STEPS // 2):
        ratio.sink()
    assert ratio.value == pytest.approx((START + FLOOR) / 2)
    for _ in range(STEPS):
        ratio.sink()
    assert ratio.value == FLOOR


def test_a_retraction_lifts_it_to_what_was_generated_and_a_little_more_and_never_lowers_it() -> None:
    ratio = NewTokenRatio()
    ratio.value = FLOOR
    ratio.jump(generated=300, possible=1000, sequences=5)
    assert ratio.value == SHARE * 0.325
    ratio.jump(generated=0, possible=1000, sequences=5)
    assert ratio.value == SHARE * 0.325
    ratio.jump(generated=1995, possible=1000, sequences=5)
    assert ratio.value == 1.0


def test_the_last_token_takes_no_room_and_any_other_at_least_some() -> None:
    room = np.array([0, 1, 2, 11, 10 * CLIP])
    assert expected_tokens(room, 0.5).tolist() == [0, 0, 1, 5, CLIP // 2]
    assert expected_tokens(room, 0.0).tolist() == [0, 0, 1, 1, 1]
