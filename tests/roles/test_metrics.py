"""Counting on a board row."""

from stretto.roles.metrics import FIRST_CELL, METRICS, SECONDS, Meter, clear_gauges, offsets


def row() -> memoryview:
    return memoryview(bytearray(128 * 8)).cast("d")


def test_metrics_of_a_role_do_not_overlap_and_fit_a_row() -> None:
    for role, metrics in METRICS.items():
        cells = [at + i for at, metric in offsets(role).values() for i in range(metric.cells)]
        assert cells == list(range(FIRST_CELL, FIRST_CELL + sum(metric.cells for metric in metrics)))
        assert not cells or cells[-1] < 128


def test_a_counter_adds_and_a_gauge_is_set() -> None:
    meter = Meter("scheduler", row())
    meter.add("steps_total")
    meter.add("steps_total", 2)
    meter.set("kv_pages", 7)
    assert meter.value("steps_total") == 3
    assert meter.value("kv_pages") == 7


def test_a_histogram_puts_a_value_on_a_bound_into_that_bound() -> None:
    cells = row()
    meter = Meter("gateway", cells)
    for seconds in (SECONDS[0], 0.006, 1000.0):
        meter.observe("request_latency_seconds", seconds)
    at, metric = offsets("gateway")["request_latency_seconds"]
    assert list(cells[at : at + 2]) == [1, 1]
    assert cells[at + len(metric.buckets)] == 1
    assert cells[at + len(metric.buckets) + 1] == SECONDS[0] + 0.006 + 1000.0


def test_a_process_that_ended_has_no_gauges_but_its_counts() -> None:
    cells = row()
    meter = Meter("scheduler", cells)
    meter.add("steps_total", 5)
    meter.set("requests_running", 3)
    clear_gauges("scheduler", cells)
    assert (meter.value("steps_total"), meter.value("requests_running")) == (5, 0)
