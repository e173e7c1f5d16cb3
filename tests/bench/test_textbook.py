import pytest

from stretto.bench.textbook import busy_share, wasted_share


def test_the_timeline_is_the_textbooks() -> None:
    assert busy_share(overlap=False) == 60 / 102
    assert busy_share(overlap=True) == 60 / 67


@pytest.mark.parametrize(("tokens", "wasted"), [(8, 1 / 8), (220, 1 / 220)])
def test_an_output_that_ends_by_itself_wastes_one_token(tokens: int, wasted: float) -> None:
    assert wasted_share(tokens, by_end=True) == wasted
    assert wasted_share(tokens, by_end=False) == 0.0
