import pytest

from stretto.bench.answer import Answer, PromptDetails, Usage
from stretto.bench.measures import (
    Objectives,
    Shares,
    Spread,
    cost,
    e2e,
    itl,
    keeps,
    samples,
    shares,
    spread,
    summarize,
    tpot,
    ttft,
)


def answer(sent: float, *pieces: float, ended: float, tokens: int = 0, prompt: int = 0) -> Answer:
    usage = Usage(prompt, tokens) if tokens else None
    return Answer(sent=sent, pieces=list(pieces), ended=ended, usage=usage)


FOUR = answer(1.0, 1.5, 1.75, 2.5, ended=3.0, tokens=5, prompt=10)


def test_latencies_count_from_the_sending() -> None:
    assert ttft(FOUR) == 0.5
    assert e2e(FOUR) == 2.0


def test_tpot_spreads_the_time_after_the_first_token_over_the_other_tokens() -> None:
    assert tpot(FOUR) == 1.5 / 4


def test_one_token_has_no_tpot() -> None:
    assert tpot(answer(0.0, 1.0, ended=1.0, tokens=1)) is None


def test_itl_is_every_gap_between_pieces() -> None:
    assert itl(FOUR) == [0.25, 0.75]


def test_an_answer_without_tokens_has_its_end_for_a_first_token() -> None:
    assert ttft(answer(1.0, ended=3.0)) == 2.0


def test_percentiles_interpolate_between_neighbours() -> None:
    assert spread([10.0, 20.0, 30.0, 40.0, 50.0]) == Spread(
        30.0, 30.0, pytest.approx(46.0), pytest.approx(49.6)
    )
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0, 7.0)
    assert spread([]) is None


def test_samples_pool_the_gaps_of_all_answers() -> None:
    one = answer(0.0, 0.125, ended=0.125, tokens=1)
    assert samples([FOUR, one]) == {
        "TTFT": [500.0, 125.0],
        "TPOT": [375.0],
        "ITL": [250.0, 750.0],
        "E2E": [2000.0, 125.0],
    }


@pytest.mark.parametrize(
    ("objectives", "kept"),
    [
        (Objectives(), True),
        (Objectives(ttft=0.5), True),
        (Objectives(ttft=0.49), False),
        (Objectives(tpot=0.375), True),
        (Objectives(tpot=0.37), False),
        (Objectives(ttft=0.5, tpot=0.37), False),
    ],
)
def test_an_answer_is_good_within_all_objectives(objectives: Objectives, kept: bool) -> None:
    assert keeps(FOUR, objectives) is kept


def test_one_token_keeps_every_objective_for_tpot() -> None:
    assert keeps(answer(0.0, 1.0, ended=1.0, tokens=1), Objectives(tpot=0.001))


def test_rates_last_from_the_first_request_to_the_last_end() -> None:
    slow = answer(2.0, 4.0, 5.0, ended=5.0, tokens=3, prompt=20)
    summary = summarize([FOUR, slow], Objectives(ttft=1.0))
    assert (summary.answered, summary.failed, summary.seconds) == (2, 0, 4.0)
    assert summary.requests_per_s == 0.5
    assert summary.output_tokens_per_s == 2.0
    assert summary.total_tokens_per_s == 9.5
    assert summary.goodput_per_s == 0.25
    assert summary.ttft_ms is not None
    assert summary.ttft_ms.mean == 1250.0


def test_failures_count_as_failures_and_nowhere_else() -> None:
    broken = Answer(sent=1.0, pieces=[1.1], ended=3.0, error="no", usage=Usage(100, 100))
    summary = summarize([FOUR, broken], Objectives())
    assert (summary.answered, summary.failed, summary.output_tokens_per_s) == (1, 1, 2.5)
    assert summary.ttft_ms == Spread(500.0, 500.0, 500.0, 500.0)


def test_nothing_answered_is_no_run() -> None:
    with pytest.raises(ValueError, match="no request was answered"):
        summarize([Answer(error="no")], Objectives())


def test_shares_come_from_what_the_counters_grew() -> None:
    before = {"stretto_prompt_tokens_total": 100.0, "stretto_cached_tokens_total": 100.0}
    after = {
        "stretto_prompt_tokens_total": 300.0,
        "stretto_cached_tokens_total": 150.0,
        "stretto_device_idle_seconds_total": 1.0,
        "stretto_device_busy_seconds_total": 3.0,
    }
    assert shares(before, after) == Shares(cache_hit_rate=0.25, device_idle_share=0.25)


def test_a_server_without_counters_has_no_shares() -> None:
    assert shares({}, {}) == Shares(None, None)


def test_the_generator_accounts_for_itself() -> None:
    late = Answer(sent=0.0, late=0.002, pieces=[1.0])
    found = cost([FOUR, late], cpu_seconds=0.5, seconds=2.0)
    assert (found.cpu_seconds, found.cpu_share, found.us_per_piece) == (0.5, 0.25, 125_000.0)
    assert found.late_p99_ms == pytest.approx(1.98)


def test_hits_are_told_apart_from_misses_where_there_are_both() -> None:
    def cached(tokens: int, first: float) -> Answer:
        usage = Usage(100, 1, PromptDetails(tokens))
        return Answer(sent=0.0, pieces=[first], ended=first, usage=usage)

    half, most = cached(50, 2.0), cached(51, 0.25)
    both = summarize([half, most], Objectives())
    assert (both.ttft_miss_ms, both.ttft_hit_ms) == (spread([2000.0]), spread([250.0]))
    for alone in (half, most):
        summary = summarize([alone], Objectives())
        assert summary.ttft_hit_ms is None
        assert summary.ttft_miss_ms is None
