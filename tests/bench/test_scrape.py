from stretto.bench.scrape import counters

EXPOSITION = """
# HELP stretto_steps_total Steps.
# TYPE stretto_steps_total counter
stretto_steps_total 12.0
stretto_requests_total{process="0"} 3.0
stretto_requests_total{process="1"} 4.0
stretto_build_info{model="a b {c}",version="1"} 1.0
stretto_time_seconds_bucket{le="+Inf"} 2.0 1700000000
"""


def test_samples_are_summed_over_labels() -> None:
    assert counters(EXPOSITION) == {
        "stretto_steps_total": 12.0,
        "stretto_requests_total": 7.0,
        "stretto_build_info": 1.0,
        "stretto_time_seconds_bucket": 2.0,
    }
