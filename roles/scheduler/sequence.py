"""A request's life in the scheduler, as states that hold only what is legal there.

    Waiting ──▶ Prefill ──▶ Decode ──▶ Retiring ──▶ (gone)
       ▲           └───────────────────▶ │
       └──────────── retracted ──────────┘

A sequence has a slot from Prefill to Retiring. Retiring means that no step will be planned for it any more,
but steps in flight still touch its slot and pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.keys import Chain
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.radix import Node


@dataclass(slots=True)
class Waiting:
    """In the queue. `tokens` are the prompt and, after a retraction, what was generated already."""

    tokens: Ints


@dataclass(slots=True)
class Running:
    """Holds a slot, its pages, and a pin on the node of the prefix tree it came from or went to."""

    slot: int
    node: Node


@dataclass(slots=True)
class Prefill(Running):
    """Chunks of its first `goal` tokens have yet to be planned."""

    goal: int
    stash: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Where layers have windows: pages for the chunks to come."""
    shared: int = 0
    """Entries of its list of pages that it got from the prefix tree."""
    owed: int = 0
    """Pages that the stash gets for others that the windows have left."""


@dataclass(slots=True)
class Decode(Running):
    """Every chunk is planned; one token per step from here."""


@dataclass(slots=True)
class Retiring(Running):
    """Waits for the last step that touches it; goes back to the queue then if it was `retracted`."""

    retracted: bool


@dataclass(slots=True)
class Gone:
    """Holds nothing."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One stream of tokens, and what stays true of it in every state."""

    request: m.Request
    age: int
    """How many requests were submitted before it."""
    limit: int
    """Length, prompt included, at which it ends."""
    state: Waiting | Prefill | Decode | Retiring | Gone
    cached: int | None = None
    """Prompt tokens the prefix tree had at the first admission; None before it."""
    strikes: int = 0
    """Losses of the device that it may have caused: see `suspects`."""
    guilt: float = 0.0
    """How sure it is, as a suspect, that it causes them."""
    published: bool = False
    """The prefix tree has got its prompt."""
    shares: bool = False
    """It shares KV with others of its own request, even where there is no prefix cache."""
    scored: int = 1
    """Tokens of the prompt, where `prompt_logprobs` are wanted, whose log-probabilities are known; the first
    token has none."""
    retractions: int = 0
    """How often it was put back for want of pages."""
    keys: list[int] = field(default_factory=list)
    """Of its prompt's prefixes, see `prefixes.keys_of`; empty where it shares none."""
    chain: Chain = field(init=False)
    """The keys of its pages, for what lies below the device."""
    mark: int = field(init=False)
    """Tokens it had at the last loss of the device, or when it came."""

    def __post_init__(self) -> None:
        self.chain = Chain(self.request.cache_salt)
        self.mark = len(self.state.tokens) if isinstance(self.state, Waiting) else 0

    @property
    def uid(self) -> int:
        return self.request.uid

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_ids) // 4

    @property
    def unscored(self) -> bool:
        """Whether log-probabilities of the prompt are wanted and not all known."""
        wanted = self.request.sampling.prompt_logprobs is not None
        return wanted and self.scored < self.prompt_tokens

    def reusable(self, tokens: int) -> int:
        """How many of its first `tokens` need not be computed: the logits after the others are needed."""
        return self.scored - 1 if self.unscored else tokens - 1
