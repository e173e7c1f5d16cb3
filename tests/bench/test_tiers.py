from stretto.bench.tiers import Turn, figures_of


def test_the_hit_rate_is_of_tokens_and_times_are_of_turns() -> None:
    turns = [Turn(float(ms), 100, cached, []) for ms, cached in ((10, 90), (30, 0), (20, 60), (40, 50))]
    assert figures_of(turns, {"out_mib": 3.0}) == {
        "hit_rate": 0.5,
        "ttft_ms_p50": 25.0,
        "ttft_ms_p90": 30.0,
        "out_mib": 3.0,
    }
