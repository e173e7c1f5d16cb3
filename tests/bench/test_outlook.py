from stretto.bench import outlook
from stretto.bench.measures import Spread, Summary
from stretto.bench.planning import Forecast, server_of
from stretto.bench.plot import Chart

ASKED = {
    "gpu": "h200", "model": "llama-3-8b", "max_seqs": 8, "max_batched_tokens": 2048, "page_size": 16,
    "overlap": True, "efficiency": 0.75, "host_us": 0.0, "prompt": 1000, "output": 200, "requests": 500,
}  # fmt: skip


def forecast(rate: float | None, times: float, tpot: bool = True) -> Forecast:
    spread = Spread(times, times, times, 3 * times)
    summary = Summary(500, 0, 100.0, 5.0, 1000.0, 6000.0, 5.0, spread, spread if tpot else None, None, spread)
    return Forecast(rate, summary, running=12.34, busy=0.5)


def test_the_heading_says_what_there_is_room_for() -> None:
    assert outlook.heading(server_of(ASKED), ASKED).splitlines() == [
        "llama-3-8b on h200: 4.8 TB/s, 989.5 TFLOP/s, 75% of both reached",
        "16.1 GB of weights, 131 kB of KV per token, room for 810,224 tokens",
        "500 requests of 1000 tokens, answered by 200",
    ]


def test_a_line_for_each_rate() -> None:
    lines = outlook.text([forecast(2.5, 1200.0), forecast(None, 10.0, tpot=False)]).splitlines()
    assert lines[1].split() == [
        "2.50", "5.00", "1,000", "1,200", "3,600", "1,200.00", "3,600.00", "1,200", "3,600",
        "12.3", "50.0%",
    ]  # fmt: skip
    assert lines[2].split()[:10] == ["all", "at", "once", "5.00", "1,000", "10", "30", "-", "-", "10"]


def test_the_file_has_every_figure() -> None:
    (figures,) = outlook.figures([forecast(2.5, 10.0)])["forecasts"]
    assert figures["rate"] == 2.5
    assert figures["ttft_ms"] == {"mean": 10.0, "p50": 10.0, "p90": 10.0, "p99": 30.0}
    assert figures["requests_per_s"] == 5.0
    assert figures["itl_ms"] is None


def test_the_picture_has_latencies_over_throughput() -> None:
    chart = outlook.chart([forecast(2.5, 10.0), forecast(None, 20.0, tpot=False)], ASKED)
    assert isinstance(chart, Chart)
    assert chart.x == [5.0, 5.0]
    assert chart.series == {"TTFT p50": [10.0, 20.0], "E2E p50": [10.0, 20.0]}
