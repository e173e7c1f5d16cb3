from typing import Any

import click
import pytest

from stretto.bench.peers import Work, WorkType, compare, rows


class Fake:
    """Runs at a rate that grows by one each time."""

    def __init__(self, rate: float) -> None:
        self.facts: dict[str, Any] = {}
        self.asked: list[tuple[list[list[int]], int]] = []
        self._rate = rate

    def run(self, prompts: list[list[int]], output_tokens: int) -> float:
        self.asked.append((prompts, output_tokens))
        return self._rate + len(self.asked)


def test_engines_get_the_same_prompts_and_new_ones_in_every_round() -> None:
    one, two = Fake(0.0), Fake(10.0)
    rates = compare({"one": one, "two": two}, Work(2, 3, 4), rounds=2, vocabulary=100)
    assert rates == {"one": [2.0, 3.0], "two": [12.0, 13.0]}
    assert one.asked == two.asked
    assert len({str(asked) for asked in one.asked}) == 3
    assert [([len(prompt) for prompt in prompts], n) for prompts, n in one.asked] == [([3, 3], 4)] * 3


def test_the_table_has_medians_and_ratios() -> None:
    rates = {"1x2/3": {"stretto": [4.0, 6.0, 8.0], "vllm": [2.0, 2.0, 4.0]}}
    assert list(rows(rates)) == [("1x2/3 stretto", "6.0", "", ""), ("1x2/3 vllm", "2.0", "3.00", "2.00")]


def test_work_is_read_as_it_is_shown() -> None:
    assert WorkType().convert("32x128/64", None, None) == Work(32, 128, 64)
    assert str(Work(32, 128, 64)) == "32x128/64"


@pytest.mark.parametrize("text", ["", "8", "8x64", "0x64/64", "8x64/0", "8x64/64/1"])
def test_what_is_no_work_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 8x64/64"):
        WorkType().convert(text, None, None)
