"""Counting tokens over all sequences of a request, and choosing among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.roles.gateway.job import Job
from stretto.roles.messages import Event, Usage


class Tally:
    """The token counts of a job, from its events: each prompt counts once, all that was generated counts.

    What of a prompt was cached is what its first sequence found; the others share its pages.
    """

    def __init__(self, job: Job) -> None:
        self._width, self._count = job.width, job.uids // job.width
        self._prompts: dict[int, Usage] = {}
        self._generated: dict[int, int] = {}

    def meet(self, position: int, usage: Usage | None) -> None:
        """Take note of a prompt, if its counts are known."""
        prompt, place = divmod(position, self._width)
        if usage is not None and (place == 0 or prompt not in self._prompts):
            self._prompts[prompt] = usage

    def add(self, position: int, event: Event) -> None:
        """Take note of an event of the sequence at `position`; what is repeated counts once."""
        self.meet(position, event.usage)
        generated = event.index + len(event.token_ids) // 4
        if event.finish_reason is not None and event.usage is not None:
            generated = event.usage.completion_tokens
        self._generated[position] = generated

    def known(self) -> Usage | None:
        """The counts so far; None while those of some prompt are not known."""
        return self.usage() if len(self._prompts) == self._count else None

    def usage(self) -> Usage:
        """The counts, of a job that has ended."""
        prompts = self._prompts.values()
        return Usage(
            sum(usage.prompt_tokens for usage in prompts),
            sum(self._generated.values()),
            sum(usage.cached_tokens for usage in prompts),
        )


def total(job: Job, events: Mapping[int, Event]) -> Usage:
    """The counts of a job that has ended, from its sequences' merged events by position."""
    tally = Tally(job)
    for position, event in events.items():
        tally.add(position, event)
    return tally.usage()


def choices(job: Job, events: Mapping[int, Event]) -> list[Event]:
    """The events to return, in the order of the answer's choices.

    Where more was generated than is wanted, those of the highest mean log-probability, best first.
    """
    if not job.picks:
        return [events[position] for position in sorted(events)]
    chosen: list[Event] = []
    for start in range(0, len(events), job.width):
        group = [events[position] for position in range(start, start + job.width)]
        chosen += sorted(group, key=_mean_logprob, reverse=True)[: job.params.n]
    return chosen


def _mean_logprob(event: Event) -> float:
    return event.cumulative_logprob / max(1, len(event.token_ids) // 4)


def usage_object(usage: Usage | None) -> dict[str, Any] | None:
    """OpenAI's usage object."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
