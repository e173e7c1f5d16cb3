"""What some requests want told beside their text: log-probabilities, and the prompt."""

from __future__ import annotations

from typing import Any

from stretto.roles.detokenizer.labels import Labels
from stretto.roles.detokenizer.scheme import Scheme
from stretto.roles.messages import Open, Output, PromptLogprobs, TokenInfo, TokenLogprobs

REPLACEMENT = "\ufffd"


def wants_details(output: Output) -> bool:
    """Whether the events of a request carry more than text, ids and the end."""
    return output.echo or output.logprobs is not None or output.prompt_logprobs is not None


class Details:
    """Collects them for one request until its events take them along."""

    __slots__ = ("_first", "_labels", "_output", "_prompt", "_prompt_tokens", "_scheme", "_tokens")

    def __init__(self, opened: Open, scheme: Scheme, labels: Labels) -> None:
        self._output = opened.output
        self._prompt_tokens = opened.prompt_tokens
        self._scheme = scheme
        self._labels = labels
        self._tokens: list[TokenInfo] = []
        self._prompt: list[TokenInfo | None] = [None]
        """From the prompt's beginning, as far as they have come; nothing comes before the first token."""
        self._first = True

    def token(self, token: int, found: TokenLogprobs) -> None:
        """Take the log-probability of the output's next token."""
        if self._output.logprobs is not None:
            self._tokens.append(self._labels.token(token, found))

    def prompt(self, found: PromptLogprobs) -> None:
        """Take a part of the prompt's; a prompt that is computed again brings some of them again.

        Raises RuntimeError when those between this part and the ones before are missing.
        """
        known = len(self._prompt) - found.start
        if known < 0:
            raise RuntimeError(f"prompt_logprobs from {found.start} came when {len(self._prompt)} was due")
        infos = self._labels.prompt(memoryview(self._output.prompt_ids).cast("i"), found)
        self._prompt += list(infos)[known:]

    def take(self, tokens: int, completed: int) -> dict[str, Any]:
        """Fields of the next event, which carries so many tokens.

        The first event of all tells of the prompt; `completed` as in `Decoding`. Raises RuntimeError when a
        token has no log-probability.
        """
        fields: dict[str, Any] = {}
        if self._output.logprobs is not None:
            fields["logprobs"], self._tokens = self._tokens, []
            if len(fields["logprobs"]) != tokens:
                raise RuntimeError(f"{tokens} tokens came with {len(fields['logprobs'])} log-probabilities")
        if self._first:
            self._first = False
            fields |= self._whole_prompt() | {"prompt_text": self._echo(completed)}
        return fields

    def _whole_prompt(self) -> dict[str, Any]:
        """Nothing also where the request ended while its prompt was being computed."""
        if self._output.prompt_logprobs is None or len(self._prompt) < self._prompt_tokens:
            return {}
        first = memoryview(self._output.prompt_ids).cast("i")[0]
        return {"prompt_logprobs": self._prompt, "prompt_first": (first, self._scheme.raw(first))}

    def _echo(self, completed: int) -> str | None:
        """The prompt's text, as it was written or as its ids say, special tokens included."""
        output = self._output
        if not output.echo:
            return None
        if output.prompt_text is not None:
            return output.prompt_text
        text = self._scheme.text(memoryview(output.prompt_ids).cast("i"))
        return text.removesuffix(REPLACEMENT * completed)
