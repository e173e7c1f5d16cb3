"""SGLang's objects, exactly."""

from __future__ import annotations

from typing import Any

from stretto.roles import messages as m
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.sglang_answers import Output
from stretto.roles.gateway.sglang_intake import Wanted
from stretto.tests.roles.gateway.house import ids, token

PROMPT = [None, token(2, "e", -0.5, 1), token(3, "y", -0.75, 1)]


def output(
    start: int | None = None, top: int | None = None, with_text: bool = True, prompt: Any = "Hey"
) -> Output:
    return Output(
        Wanted(Job(params=m.SamplingParams(), prompts=(prompt,)), start, top, with_text), "mine", 2.0
    )


def meta(event: m.Event, of: Output | None = None) -> dict[str, Any]:
    return (of or output()).add(event, 5.0)["meta_info"]


def end(reason: m.FinishReason, stop: str | int | None = None, last: int = 9) -> m.Event:
    return m.Event(1, 0, "a", ids(4, last), reason, stop, m.Usage(3, 2, 1))


def test_events_add_up() -> None:
    grown = output()
    first = grown.add(m.Event(1, 0, "He", ids(4), usage=m.Usage(3, 1, 1)), 4.0)
    assert first == {
        "text": "He",
        "output_ids": [4],
        "meta_info": {
            "id": "mine",
            "finish_reason": None,
            "prompt_tokens": 3,
            "completion_tokens": 1,
            "cached_tokens": 1,
        },
    }
    last = grown.add(m.Event(1, 1, "y", ids(5), "length", usage=m.Usage(3, 2, 1)), 5.5)
    assert (last["text"], last["output_ids"]) == ("Hey", [4, 5])
    assert (last["meta_info"]["e2e_latency"], last["meta_info"]["completion_tokens"]) == (3.5, 2)
    assert first["output_ids"] == [4]


def test_what_ended_it_is_told() -> None:
    assert meta(end("stop"))["finish_reason"] == {"type": "stop", "matched": 9}
    assert meta(end("stop", "END"))["finish_reason"] == {"type": "stop", "matched": "END"}
    assert meta(end("stop", 7))["finish_reason"] == {"type": "stop", "matched": 7}
    assert meta(end("length"))["finish_reason"] == {"type": "length", "length": 2}
    assert meta(m.Event(1, 0, "", finish_reason="stop"))["finish_reason"] == {"type": "stop", "matched": None}


def test_log_probabilities_of_the_output() -> None:
    event = m.Event(1, 0, "a", ids(4), "length", logprobs=[token(4, "a", -1.0, 0)])
    told = meta(event, output(top=0))
    assert told["output_token_logprobs"] == [[-1.0, 4, "a"]]
    assert told["input_token_logprobs"] == []
    assert "output_top_logprobs" not in told
    assert meta(event, output(top=0, with_text=False))["output_token_logprobs"] == [[-1.0, 4, None]]
    assert "output_token_logprobs" not in meta(event)


def test_alternatives_are_listed_and_no_number_is_infinite() -> None:
    event = m.Event(1, 0, "a", ids(4), "length", logprobs=[token(4, "a", -1.0, 3)])
    told = meta(event, output(top=3))
    assert told["output_top_logprobs"] == [[[-0.25, 20, "ö"], [-1.5, 21, "\ufffd"], [-9999.0, 22, " z"]]]
    assert told["input_top_logprobs"] == []


def test_the_prompt_is_scored_from_its_start() -> None:
    event = m.Event(1, 0, "", finish_reason="length", prompt_logprobs=PROMPT, prompt_ids=ids(1, 2, 3))
    told = meta(event, output(start=0, top=1))
    assert told["input_token_logprobs"] == [[None, 1, None], [-0.5, 2, "e"], [-0.75, 3, "y"]]
    assert told["input_top_logprobs"] == [None, [[-0.25, 20, "ö"]], [[-0.25, 20, "ö"]]]


def test_the_prompt_is_scored_from_a_later_token() -> None:
    event = m.Event(1, 0, "", finish_reason="length", prompt_logprobs=PROMPT)
    assert meta(event, output(start=1, top=0))["input_token_logprobs"] == [[None, 2, "e"], [-0.75, 3, "y"]]
    assert meta(event, output(start=2, top=0))["input_token_logprobs"] == [[None, 3, "y"]]
    assert meta(event, output(start=3, top=0))["input_token_logprobs"] == []


def test_the_first_id_of_a_streamed_prompt_is_known_where_ids_were_given() -> None:
    event = m.Event(1, 0, "a", ids(4), prompt_logprobs=PROMPT)
    assert meta(event, output(start=0, top=0, prompt=[1, 2, 3]))["input_token_logprobs"][0] == [None, 1, None]
    assert meta(event, output(start=0, top=0))["input_token_logprobs"][0] == [None, None, None]
