"""Log lines."""

import json
import logging

import pytest

from stretto.roles.logs import Formatter, Plain


def record(message="request ended", *args, exc_info=None, **fields):
    made = logging.LogRecord("gateway.0", logging.INFO, "", 0, message, args, exc_info)
    made.created, made.msecs, made.fields = 1767225600.0079, 7.9, fields
    return made


def test_text_is_for_people():
    line = Formatter("gateway.0", "text").format(record(request_id="cmpl-1", tokens=12))
    assert line == "INFO gateway.0 request ended request_id=cmpl-1 tokens=12"


def test_json_is_one_object_per_line():
    line = Formatter("gateway.0", "json").format(record("%d\nrequests", 3, request_id="é"))
    assert line.count("\n") == 0
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.007Z",
        "level": "info",
        "role": "gateway.0",
        "event": "3\nrequests",
        "request_id": "é",
    }


@pytest.mark.parametrize("kind", ["text", "json"])
def test_an_exception_is_part_of_its_event(kind):
    try:
        raise ValueError("why")
    except ValueError as error:
        line = Formatter("gateway.0", kind).format(record(exc_info=(ValueError, error, None)))
    assert "ValueError: why" in line
    assert kind == "text" or json.loads(line)["exception"] == "ValueError: why"


def test_the_supervisors_text_lines_begin_with_the_program():
    assert Plain("supervisor", "text").format(record("ready")) == "stretto: ready"
    assert json.loads(Plain("supervisor", "json").format(record("ready")))["role"] == "supervisor"
