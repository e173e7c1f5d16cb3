from types import SimpleNamespace

from stretto.bench.against import compare


def summary(rate: float, ttft: float) -> SimpleNamespace:
    return SimpleNamespace(
        output_tokens_per_s=rate,
        ttft_ms=SimpleNamespace(p50=ttft, p99=2 * ttft),
        tpot_ms=SimpleNamespace(p50=8.0),
    )


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_medians() -> None:
    ours, theirs = [(10.0, 1.0), (40.0, 2.0), (90.0, 4.0)], [(10.0, 4.0), (10.0, 2.0), (30.0, 1.0)]
    rounds = [
        {"stretto": summary(*mine), "other": summary(*other)}
        for mine, other in zip(ours, theirs, strict=True)
    ]
    rows = {row["figure"]: row for row in compare(rounds)}
    assert rows["output tokens/s"] == {
        "figure": "output tokens/s",
        "stretto": 40.0,
        "other": 10.0,
        "ratio": 3.0,
    }
    assert rows["TTFT p50 ms"]["ratio"] == 1.0
    assert rows["TPOT p50 ms"]["ratio"] == 1.0
