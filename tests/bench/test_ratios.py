from stretto.bench.ratios import Ratio, ratio, ratios

OURS, THEIRS = [10.0, 40.0, 30.0], [10.0, 10.0, 20.0]


def test_medians_are_compared_in_both_ways() -> None:
    assert ratio(OURS, THEIRS) == Ratio(of_medians=3.0, median=1.5)


def test_every_other_engine_has_ratios_for_every_work() -> None:
    assert ratios({"1x2/3": {"us": OURS, "them": THEIRS}}, "us") == {
        "1x2/3": {"them": {"of_medians": 3.0, "median": 1.5}}
    }
