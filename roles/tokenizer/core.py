"""`Submit` to `Request`: all that needs the vocabulary, with no I/O."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Sequence

from stretto.roles.messages import Output, Request, Submit
from stretto.roles.tokenizer.chat import ChatTemplate
from stretto.roles.tokenizer.refusal import Refused, check_text, context_exceeded
from stretto.roles.tokenizer.sampling import check_stop_strings, resolve_sampling, resolve_stops
from stretto.roles.tokenizer.vocabulary import Vocabulary

CONTEXT_IDS = 8
"""Prompt ids that the detokenizer gets: a character split over tokens takes four, the rest is margin."""


class Core:
    """Turns requests in text into requests in tokens, or says why not."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        """`draw_seed` gives a seed to requests that name none."""
        self._vocabulary = vocabulary
        self._template = template
        self._draw_seed = draw_seed

    def prepare(self, submit: Submit) -> Request:
        """The request in tokens; raises `Refused` when it is at fault, and changes nothing."""
        params, param = submit.params, "prompt" if submit.messages is None else "messages"
        stop_ids, silent = resolve_stops(params, self._vocabulary.eos, self._vocabulary.size)
        check_stop_strings(params.stop)
        ids = self._prompt_ids(submit, param)
        self._check(ids, params.max_tokens, param)
        prompt = _int32(ids)
        return Request(
            uid=submit.uid,
            arrived=submit.arrived,
            prompt_ids=prompt,
            max_tokens=params.max_tokens,
            stop_ids=stop_ids,
            sampling=resolve_sampling(params, self._draw_seed()),
            output=_output(submit, prompt, ids),
            silent_stop_ids=silent,
        )

    def _prompt_ids(self, submit: Submit, param: str) -> list[int]:
        if isinstance(submit.prompt, list):
            return submit.prompt
        if submit.messages is not None:
            text = self._template.render(
                submit.messages, submit.add_generation_prompt, submit.template_kwargs
            )
        else:
            text = submit.prompt or ""
        check_text(text, param)
        self._check_length(text, submit.params.max_tokens, param)
        try:
            return self._vocabulary.encode(text, add_special_tokens=submit.messages is None)
        except Exception as error:  # e.g. a character that a vocabulary without an unknown token lacks
            raise Refused(f"The tokenizer cannot encode this text: {error}.", param) from error

    def _check_length(self, text: str, max_tokens: int | None, param: str) -> None:
        """Refuse a text whose length alone shows that it cannot fit; see `bound`."""
        if self._vocabulary.bound is not None:
            least = self._vocabulary.bound.least_tokens(text)
            if least >= self._vocabulary.context:
                raise context_exceeded(self._vocabulary.context, least, max_tokens, param, floor=True)

    def _check(self, ids: list[int], max_tokens: int | None, param: str) -> None:
        if not ids:
            raise Refused("The prompt has no tokens.", param)
        size = self._vocabulary.size
        if min(ids) < 0 or max(ids) >= size:
            wrong = next(token for token in ids if not 0 <= token < size)
            raise Refused(f"The prompt has token id {wrong}, but ids run from 0 to {size - 1}.", param)
        if len(ids) + (max_tokens or 1) > self._vocabulary.context:
            raise context_exceeded(self._vocabulary.context, len(ids), max_tokens, param)


def _output(submit: Submit, prompt: bytes, ids: Sequence[int]) -> Output:
    params = submit.params
    return Output(
        gateway=submit.gateway,
        stream=submit.stream,
        stop=params.stop,
        include_stop=params.include_stop_str_in_output,
        skip_special=params.skip_special_tokens,
        context_ids=_int32(ids[-CONTEXT_IDS:]),
        prompt_ids=prompt if submit.echo_prompt_ids else b"",
    )


def _int32(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()
