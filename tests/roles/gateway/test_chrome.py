"""From records to Chrome's trace format."""

from __future__ import annotations

from typing import Any

from stretto.roles.gateway.chrome import chrome
from stretto.roles.trace import Label
from stretto.shm.trace import Record, Recording

SINCE = 1_000_000


def recording(labels: list[Label], *spans: tuple[int, int, int, int]) -> Recording:
    """`spans` are (label, start, end, a), in nanoseconds since the recording began."""
    records = [Record(label, SINCE + start, SINCE + end, a, 2 * a) for label, start, end, a in spans]
    return Recording(SINCE, [label.text() for label in labels], records, 0)


def of_phase(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def tracks(trace: dict[str, Any]) -> list[tuple[int, int | None, str]]:
    named = [event for event in of_phase(trace, "M") if event["name"] != "process_sort_index"]
    return [(event["pid"], event.get("tid"), event["args"]["name"]) for event in named]


SCHEDULER = recording(
    [Label("turn"), Label("plan", ("step", "rows")), Label("digest", ("step",))],
    (1, 1000, 2000, 1),
    (0, 500, 2500, 0),
    (2, 9000, 9500, 1),
    (1, 9500, 9600, 2),
)
EXECUTOR = recording(
    [Label("queued", ("step",), "queue"), Label("step", ("step",), "compute"), Label("launch", ("step",))],
    (2, 3000, 3250, 1),
    (0, 3200, 4000, 1),
    (1, 4000, 8000, 1),
)


def test_a_span_is_a_complete_event_in_microseconds() -> None:
    turn, plan, *_ = of_phase(chrome({"scheduler.0": SCHEDULER}, {}), "X")
    place = {"ph": "X", "pid": 1, "tid": 1}
    assert turn == {**place, "name": "turn", "ts": 0.5, "dur": 2.0, "args": {}}
    assert plan == {**place, "name": "plan", "ts": 1.0, "dur": 1.0, "args": {"step": 1, "rows": 2}}


def test_roles_are_tracks_from_the_door_inwards_and_so_is_each_stream_of_the_device() -> None:
    empty = Recording(SINCE, [], [], 0)
    names = ["executor.0", "scheduler.0", "detokenizer.0", "tokenizer.1", "tokenizer.0", "gateway.0"]
    trace = chrome(dict.fromkeys(names, empty) | {"executor.0": EXECUTOR}, {})
    assert tracks(trace) == [
        (1, None, "gateway.0"),
        (1, 1, "loop"),
        (2, None, "tokenizer.0"),
        (2, 1, "loop"),
        (3, None, "tokenizer.1"),
        (3, 1, "loop"),
        (4, None, "scheduler.0"),
        (4, 1, "loop"),
        (5, None, "executor.0"),
        (5, 1, "loop"),
        (6, None, "device of executor.0"),
        (6, 1, "queue"),
        (6, 2, "compute"),
        (7, None, "detokenizer.0"),
        (7, 1, "loop"),
    ]


def test_a_ring_is_named() -> None:
    label = Label("send", ("position", "bytes"), edge="a.0>b.0")
    (event,) = of_phase(chrome({"a.0": recording([label], (0, 1, 2, 48))}, {}), "X")
    assert event["args"] == {"position": 48, "bytes": 96, "edge": "a.0>b.0"}


def test_what_began_before_the_recording_is_left_out() -> None:
    trace = chrome({"a.0": recording([Label("turn")], (0, -5, 10, 0), (0, 20, 30, 0))}, {})
    assert [event["ts"] for event in of_phase(trace, "X")] == [0.02]


def test_arrows_lead_from_plan_to_step_to_digest() -> None:
    trace = chrome({"scheduler.0": SCHEDULER, "executor.0": EXECUTOR}, {})
    arrows = [
        (e["ph"], e["id"], e["pid"], e["tid"], e["ts"]) for e in trace["traceEvents"] if e["ph"] in "stf"
    ]
    assert arrows == [("s", 1, 1, 1, 1.001), ("t", 1, 3, 2, 4.001), ("f", 1, 1, 1, 9.001)]


def test_arrows_of_a_device_that_counts_anew_do_not_cross() -> None:
    labels = [Label("plan", ("step",)), Label("digest", ("step",)), Label("step", ("step",), "compute")]
    scheduler = recording(labels, (0, 0, 10, 1), (1, 50, 60, 1), (0, 100, 110, 1), (1, 150, 160, 1))
    executor = recording(labels, (2, 20, 40, 1), (2, 120, 140, 1))
    trace = chrome({"scheduler.0": scheduler, "executor.0": executor}, {})
    arrows = [(event["ph"], event["id"], round(event["ts"] * 1000)) for event in trace["traceEvents"][-6:]]
    assert arrows == [("s", 1, 1), ("t", 1, 21), ("f", 1, 51), ("s", 2, 101), ("t", 2, 121), ("f", 2, 151)]


def test_other_data_goes_along() -> None:
    assert chrome({}, {"seconds": 2.5})["otherData"] == {"seconds": 2.5}
