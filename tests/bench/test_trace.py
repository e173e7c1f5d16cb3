import pytest

from stretto.bench.trace import TraceError, read

TEXT = '{"arrival": 0.5, "prompt": "Once", "output_tokens": 3}\n'
IDS = '{"arrival": 0.25, "prompt": [1, 2], "output_tokens": 4}\n'
RANDOM = '{"prompt_tokens": 6, "output_tokens": 1}\n'


def test_requests_come_in_the_order_of_their_arrival() -> None:
    trace = read([TEXT, "\n", IDS], vocabulary=10, seed=0)
    assert trace.arrivals == [0.25, 0.5]
    assert trace.sessions == [[([1, 2], 4)], [("Once", 3)]]


def test_random_tokens_are_those_of_the_seed() -> None:
    trace, again = read([RANDOM], 10, 7), read([RANDOM], 10, 7)
    ((prompt, output),) = trace.sessions[0]
    assert trace == again
    assert (trace.arrivals, len(prompt), output) == ([0.0], 6, 1)
    assert read([RANDOM], 10, 8) != trace


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "a"}', "line 2: Object missing required field `output_tokens`"),
        ('{"output_tokens": 1}', "line 2: give either `prompt` or `prompt_tokens`"),
        ('{"prompt": "a", "prompt_tokens": 2, "output_tokens": 1}', "line 2: give either"),
        ('{"prompt": "a", "output_tokens": 0}', "line 2: Expected `int` >= 1"),
        ('{"prompt": "a", "output_tokens": 1, "arrival": -1}', "line 2: Expected `float` >= 0"),
        ('{"prompt": "a", "output_tokens": 1, "when": 1}', "line 2: Object contains unknown field `when`"),
        ("nonsense", "line 2: JSON is malformed"),
    ],
)
def test_a_line_that_is_no_request_is_named(line: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        read([TEXT, line], vocabulary=10, seed=0)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="no requests"):
        read(["\n"], vocabulary=10, seed=0)
