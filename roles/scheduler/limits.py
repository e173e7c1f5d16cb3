"""What the pool and the configuration allow, and the refusal of what can never fit."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from stretto.roles import messages as m
from stretto.roles.scheduler.below import NOTHING_BELOW, Below
from stretto.roles.scheduler.windows import Windows

SchedulePolicy = Literal["prefix", "fcfs", "priority"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes the core lives within; pages and slots are numbered from 0."""

    pages: int
    """KV pages in the pool."""
    page_size: int
    """Tokens per page."""
    max_seqs: int
    """Slots: sequences that run at once."""
    max_batched_tokens: int
    """Tokens per step, prompt chunks and decodes together."""
    max_model_len: int
    """Tokens per sequence, prompt and output together."""
    overlap: bool = True
    """Keep two plans in flight instead of one."""
    prefix_cache: bool = True
    """Reuse the KV of earlier prompts and answers; the choices and beams of one request share in any case."""
    detokenizers: int = 1
    """A request's tokens go to detokenizer `uid % detokenizers`."""
    below: Below = NOTHING_BELOW
    """The memory below the pool."""
    policy: SchedulePolicy = "prefix"
    """The order of the queue: see `scheduler.policy`."""
    max_overtakes: int = 512
    """Requests of the same priority that came later and may be admitted before one that waits."""
    shared_tokens: int = 64
    """A request waits for another to compute this much of its prompt. SGLang's threshold is 32; so few tokens
    cost a GPU nothing that is busy reading its weights, and the wait is up to two steps."""
    windows: tuple[int, ...] = (0,)
    """Of each group of the model's layers, how many positions they look back on, 0: all."""
    state_pages: int = 0
    """Pages that a sequence has besides while it runs: what the model carries along in a fixed size. What it
    was earlier in the sequence is lost, so that there is nothing to share with others."""

    def make_windows(self) -> Windows | None:
        """What the groups of layers need; None for the one that needs all of the past."""
        if self.windows == (0,):
            return None
        return Windows(self.windows, self.page_size, self.max_batched_tokens)

    def pages_of(self, tokens: int) -> int:
        """Pages that a sequence of so many tokens needs at most at once."""
        windows, blocks = self.make_windows(), pages_for(tokens, self.page_size)
        return self.state_pages + (blocks if windows is None else windows.most(blocks))

    @property
    def grain(self) -> int:
        """Tokens by which prefixes of waiting requests are told apart."""
        return max(1, min(16, self.shared_tokens // 4))

    def priority_of(self, request: m.Request) -> int:
        """Lower goes first."""
        return 0 if self.policy == "fcfs" else request.priority

    @property
    def longest(self) -> int:
        """Tokens the longest possible sequence has: it fits the context and, alone, the pool."""
        windows, pages = self.make_windows(), max(0, self.pages - self.state_pages)
        if windows is None:
            return min(self.max_model_len, pages * self.page_size)
        blocks = range(pages_for(self.max_model_len, self.page_size) + 1)
        fits = bisect_right(blocks, pages, key=windows.most) - 1
        return min(self.max_model_len, fits * self.page_size)

    def end_of(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Length, prompt included, at which a request ends if nothing stops it before."""
        return self.longest if max_tokens is None else prompt_tokens + max_tokens

    def refusal(self, prompt_tokens: int, max_tokens: int | None) -> m.Fault | None:
        """Why a request of this size can never finish, None when it can."""
        tokens = prompt_tokens + (1 if max_tokens is None else max_tokens)
        if tokens > self.max_model_len:
            return m.Fault(
                400,
                f"{_size(prompt_tokens, max_tokens)} need {tokens} tokens of context, but the context is "
                f"{self.max_model_len} tokens: shorten the prompt or lower max_tokens.",
                param="prompt" if max_tokens is None else "max_tokens",
                code="context_length_exceeded",
            )
        pages = self.pages_of(tokens)
        if pages > self.pages:
            return m.Fault(
                400,
                f"{_size(prompt_tokens, max_tokens)} need {pages} KV pages, but the pool has {self.pages} "
                f"({self.page_size} tokens each): shorten the prompt, lower max_tokens, or start the server "
                "with more --kv-memory.",
                param="prompt" if max_tokens is None else "max_tokens",
                code="kv_pool_exceeded",
            )
        return None


MIN_BUDGET, MAX_BUDGET = 128, 8192
"""Tokens of a step. With less a CPU computes prompts noticeably slower (fp16 weights, per row: 0.84 ms at 32
rows, 0.77 at 256) and a GPU reads its weights for too little; with more nothing gets faster."""


def chunk_budget(prefill_rate: float, seconds: float, max_seqs: int) -> int:
    """Tokens per step with which a step full of prompt takes so long, `prefill_rate` tokens per second; at
    least what leaves room for a prompt beside a full batch.
    """
    wanted = int(prefill_rate * seconds) // 16 * 16
    return max(min(wanted, MAX_BUDGET), MIN_BUDGET, 2 * max_seqs)


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that hold this many tokens, the last one perhaps in part."""
    return -(-tokens // page_size)


def _size(prompt_tokens: int, max_tokens: int | None) -> str:
    output = "at least 1 output token" if max_tokens is None else f"max_tokens={max_tokens}"
    return f"A prompt of {prompt_tokens} tokens and {output}"
