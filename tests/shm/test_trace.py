"""Spans in shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stretto.shm import memory
from stretto.shm.trace import MAX_LABELS, Record, Recording, Section, Traces


@pytest.fixture
def fd() -> Iterator[int]:
    fd = Traces.create(["scheduler.0", "executor.0"], capacity=3)
    yield fd
    os.close(fd)


@pytest.fixture
def section(fd: int) -> Section:
    section = Traces(fd).section("scheduler.0")
    section.begin(1000)
    return section


def test_a_process_that_knows_only_the_descriptor_finds_the_sections(fd: int) -> None:
    assert Traces(fd).names == ["scheduler.0", "executor.0"]


def test_a_fresh_section_has_nothing(fd: int) -> None:
    assert Traces(fd).section("executor.0").read() == Recording(0, [], [], 0)


def test_others_read_what_was_recorded(fd: int, section: Section) -> None:
    plan, digest = section.label("plan"), section.label("digest")
    section.record(plan, 1001, 1009, 7, -1)
    section.record(digest, 1010, 2**62)
    records = [Record(0, 1001, 1009, 7, -1), Record(1, 1010, 2**62, 0, 0)]
    assert Traces(fd).section("scheduler.0").read() == Recording(1000, ["plan", "digest"], records, 0)
    assert Traces(fd).section("executor.0").read().records == []


def test_a_label_keeps_its_number(section: Section) -> None:
    assert [section.label(text) for text in ("a", "b", "a")] == [0, 1, 0]


def test_what_does_not_fit_is_counted_and_dropped(section: Section) -> None:
    label = section.label("turn")
    for start in range(5):
        section.record(label, start, start + 1)
    recording = section.read()
    assert [record.start for record in recording.records] == [0, 1, 2]
    assert recording.dropped == 2


def test_a_successor_goes_on_with_the_same_recording(fd: int, section: Section) -> None:
    section.record(section.label("turn"), 1, 2)
    successor = Traces(fd).section("scheduler.0")
    successor.begin(1000)
    assert (successor.label("verify"), successor.label("turn")) == (1, 0)
    successor.record(1, 3, 4)
    assert successor.read().records == [Record(0, 1, 2, 0, 0), Record(1, 3, 4, 0, 0)]


def test_another_recording_starts_afresh(section: Section) -> None:
    label = section.label("turn")
    for start in range(5):
        section.record(label, start, start)
    section.begin(2000)
    assert section.read() == Recording(2000, [], [], 0)


def test_labels_beyond_the_room_for_them_are_refused(section: Section) -> None:
    for i in range(MAX_LABELS):
        section.label(str(i))
    with pytest.raises(ValueError, match="does not fit"):
        section.label("one more")
    assert section.label("5") == 5


def test_a_label_that_is_too_long_is_refused(section: Section) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        section.label("x" * 129)


def test_names_must_differ() -> None:
    with pytest.raises(ValueError, match="differ"):
        Traces.create(["a", "a"])


def test_other_memory_is_refused() -> None:
    fd = memory.create("other", 4096)
    try:
        with pytest.raises(ValueError, match="not trace memory"):
            Traces(fd)
    finally:
        os.close(fd)
