from __future__ import annotations

import pytest

from stretto.roles.tokenizer import budget as budgets
from stretto.roles.tokenizer.budget import Budget, Exceeded


def test_the_clock_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5.0, 6.0, 6.1])
    monkeypatch.setattr(budgets.time, "thread_time", lambda: next(times))
    budget = Budget()
    for _ in range(3 * 64 - 1):
        budget.tick()
    with pytest.raises(Exceeded, match="more than 1 s"):
        budget.tick()


def test_what_is_made_is_spent_and_what_is_foreseen_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "MAX_SIZE", 10)
    budget = Budget()
    budget.foresee(10)
    assert budget.made("abcd") == "abcd"
    assert budget.made([1, 2]) == [1, 2]
    assert budget.made(10**9) == 10**9
    assert budget.concat(iter(["a", "b"])) == "ab"
    with pytest.raises(Exceeded, match="more than 10 characters"):
        budget.foresee(3)
    assert budget.text("ab") == "ab"  # is spent where it is put into the output
    assert budget.text(12) == "12"
    with pytest.raises(Exceeded):
        budget.spend(1)


def test_a_join_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "MAX_SIZE", 8)
    assert Budget().join(["a", "b", "c"], "--") == "a--b--c"
    with pytest.raises(Exceeded):
        Budget().join(["a", "b", "c"], "---")
