"""Answers in vLLM's shape."""

from __future__ import annotations

from stretto.roles.client.frames import Alternative, Completion, PromptDetails, TokenLogprob, Usage
from stretto.roles.client.outputs import CompletionOutput, Logprob, request_output

USAGE = Usage(5, 2, 7, PromptDetails(3))


def token(id: int, *top: int) -> TokenLogprob:
    return TokenLogprob(id, chr(id), [id], -0.5, 2, [Alternative(i, chr(i), [i], -0.25) for i in top])


def test_a_plain_answer_has_no_logprobs() -> None:
    output = request_output(3, "Hi", Completion("ab", [1, 2], "stop", "b", USAGE, [7]))
    assert (output.request_id, output.prompt, output.prompt_token_ids) == ("3", "Hi", [7])
    assert (output.num_cached_tokens, output.prompt_logprobs) == (3, None)
    assert output.outputs == [CompletionOutput(0, "ab", [1, 2], "stop", "b")]


def test_choices_are_numbered_and_logprobs_are_tables_by_id() -> None:
    other = Completion("b", [98], "length", None, USAGE, [])
    first = Completion("a", [97], "stop", None, USAGE, [7], [token(97, 98, 97)], [None, token(99)], [other])
    output = request_output(0, None, first)
    assert [(answer.index, answer.text) for answer in output.outputs] == [(0, "a"), (1, "b")]
    assert output.outputs[0].cumulative_logprob == -0.5
    assert output.outputs[0].logprobs == [{97: Logprob(-0.5, 2, "a"), 98: Logprob(-0.25, 1, "b")}]
    assert output.prompt_logprobs == [None, {99: Logprob(-0.5, 2, "c")}]
