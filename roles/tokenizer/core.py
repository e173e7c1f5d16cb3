"""`Submit` to `Request`: all that needs the vocabulary, with no I/O."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from stretto.roles.messages import (
    Beams,
    Detokenize,
    Detokenized,
    Output,
    Request,
    SamplingParams,
    Submit,
    Tokenize,
    Tokenized,
)
from stretto.roles.tokenizer.chat import ChatTemplate
from stretto.roles.tokenizer.choices import choice_count, split
from stretto.roles.tokenizer.controls import check_ids, int32, resolve_controls
from stretto.roles.tokenizer.refusal import Refused, check_text, context_exceeded
from stretto.roles.tokenizer.sampling import (
    check_counts,
    check_stop_strings,
    resolve_sampling,
    resolve_stops,
)
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

    def prepare(self, submit: Submit) -> list[Request]:
        """The request in tokens, one for each choice; raises `Refused` when it is at fault.

        The first has the submit's uid, the others the next ones.
        """
        params, param = submit.params, _prompt_param(submit)
        check_counts(params)
        check_stop_strings(params.stop)
        stop_ids, silent = resolve_stops(params, self._vocabulary.eos, self._vocabulary.size)
        controls = resolve_controls(
            params,
            tuple(dict.fromkeys(self._vocabulary.eos + stop_ids)),
            self._vocabulary.size,
            self._bad_word,
        )
        ids = submit.prompt if isinstance(submit.prompt, list) else self._encode(submit)
        self._check(ids, params.max_tokens, param)
        prompt = int32(ids)
        request = Request(
            uid=submit.uid,
            arrived=submit.arrived,
            prompt_ids=prompt,
            max_tokens=params.max_tokens,
            stop_ids=stop_ids,
            sampling=resolve_sampling(params, self._draw_seed(), controls),
            output=_output(submit, prompt, ids),
            silent_stop_ids=silent,
            priority=submit.priority,
            deadline=submit.deadline,
            beams=_beams(params),
            cache_salt=submit.cache_salt,
        )
        requests = split(request, choice_count(params))
        if submit.generated:
            return [replace(one, generated=submit.generated.get(one.uid, b"")) for one in requests]
        return requests

    def tokenize(self, message: Tokenize) -> Tokenized:
        """Ids of a text or a conversation, however many, and each one's entry in the vocabulary."""
        ids = self._encode(message)
        entries = [self._vocabulary.entry(token) for token in ids]
        return Tokenized(message.uid, ids, entries, self._vocabulary.context)

    def detokenize(self, message: Detokenize) -> Detokenized:
        """Text of the ids, special tokens included."""
        check_ids(message.token_ids, self._vocabulary.size, "tokens")
        return Detokenized(message.uid, self._vocabulary.decode(message.token_ids))

    def _bad_word(self, text: str) -> list[int]:
        return self._ids(text, False, "bad_words")

    def _encode(self, message: Submit | Tokenize) -> list[int]:
        param, special = _prompt_param(message), message.add_special_tokens
        text = str(message.prompt or "") if message.messages is None else self._render(message)
        check_text(text, param)
        if isinstance(message, Submit):
            self._check_length(text, message.params.max_tokens, param)
        return self._ids(text, message.messages is None if special is None else special, param)

    def _ids(self, text: str, special: bool, param: str) -> list[int]:
        try:
            return self._vocabulary.encode(text, special)
        except Exception as error:  # e.g. a character that a vocabulary without an unknown token lacks
            raise Refused(f"The tokenizer cannot encode this text: {error}.", param) from error

    def _render(self, message: Submit | Tokenize) -> str:
        return self._template.render(
            message.messages or [],
            message.add_generation_prompt,
            message.template_kwargs,
            message.continue_final_message,
        )

    def _check_length(self, text: str, max_tokens: int | None, param: str) -> None:
        """Refuse a text whose length alone shows that it cannot fit; see `bound`."""
        if self._vocabulary.bound is not None:
            least = self._vocabulary.bound.least_tokens(text)
            if least + _room(max_tokens) > self._vocabulary.context:
                raise context_exceeded(self._vocabulary.context, least, max_tokens, param, floor=True)

    def _check(self, ids: list[int], max_tokens: int | None, param: str) -> None:
        if not ids:
            raise Refused("The prompt has no tokens.", param)
        size = self._vocabulary.size
        if min(ids) < 0 or max(ids) >= size:
            wrong = next(token for token in ids if not 0 <= token < size)
            raise Refused(f"The prompt has token id {wrong}, but ids run from 0 to {size - 1}.", param)
        if len(ids) + _room(max_tokens) > self._vocabulary.context:
            raise context_exceeded(self._vocabulary.context, len(ids), max_tokens, param)


def _room(max_tokens: int | None) -> int:
    """Tokens of the output that must fit: all that are asked for, else one."""
    return 1 if max_tokens is None else max_tokens


def _output(submit: Submit, prompt: bytes, ids: Sequence[int]) -> Output:
    params = submit.params
    text = submit.prompt if submit.echo and isinstance(submit.prompt, str) else None
    decoded = submit.echo and text is None
    return Output(
        gateway=submit.gateway,
        stream=submit.stream,
        stop=params.stop,
        include_stop=params.include_stop_str_in_output,
        skip_special=params.skip_special_tokens,
        context_ids=int32(ids[-CONTEXT_IDS:]),
        prompt_ids=prompt if submit.echo_prompt_ids or decoded or params.prompt_logprobs is not None else b"",
        return_prompt_ids=submit.echo_prompt_ids,
        echo=submit.echo,
        min_tokens=params.min_tokens,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
        prompt_text=text,
        retain=submit.retain,
        key=submit.key,
    )


def _prompt_param(message: Submit | Tokenize) -> str:
    return "prompt" if message.messages is None else "messages"


def _beams(params: SamplingParams) -> Beams | None:
    if not params.use_beam_search:
        return None
    width = params.best_of or params.n
    return Beams(width, params.n, params.length_penalty, params.early_stopping)
