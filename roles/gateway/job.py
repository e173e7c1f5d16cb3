"""What a valid request comes to, whichever endpoint it came by."""

from __future__ import annotations

from typing import Any

import msgspec

from stretto.roles.messages import SamplingParams


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request: what to generate, and in what form the client wants to hear of it.

    It has `width` sequences for each of its prompts, or for its one conversation. Their places in the job,
    prompt by prompt, are their *positions*; the uids of a job are consecutive, in the order of positions.
    """

    params: SamplingParams
    """As the roles behind the gateway get them."""
    prompts: tuple[str | list[int], ...] = ()
    """Texts or token ids; empty for a chat."""
    messages: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    echo: bool = False
    """Each text begins with its prompt."""
    lead: str = ""
    """Each text begins with this."""
    prompt_logprobs: int | None = None
    """What the client wants to see; `params` ask for more where `echo` needs it."""
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    """Every chunk of a stream has the counts so far."""
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    """Log-probabilities name tokens as "token_id:7"."""
    priority: int = 0
    timeout: float | None = None
    """Seconds from arrival after which the request fails."""
    request_id: str | None = None
    """The answer's id; None: one is made."""
    retain: float = 0.0
    """Seconds that a stream outlives its client's connection; 0: it ends with it."""
    key: int = 0
    """63 random bits: who knows them may come back for a retained stream."""
    cache_salt: str = ""

    @property
    def width(self) -> int:
        """Sequences per prompt that have a uid."""
        return self.params.width

    @property
    def uids(self) -> int:
        """Sequences that have a uid, of all prompts."""
        return max(1, len(self.prompts)) * self.width

    @property
    def choices(self) -> int:
        """Choices of the answer."""
        return max(1, len(self.prompts)) * self.params.n

    @property
    def positions(self) -> list[int]:
        """Positions of the sequences that bring something: of beams, only the best have a say."""
        told = self.params.n if self.params.use_beam_search else self.width
        return [start + i for start in range(0, self.uids, self.width) for i in range(told)]

    @property
    def picks(self) -> bool:
        """More is generated than returned, and the choice falls at the end."""
        return self.width > self.params.n and not self.params.use_beam_search

    def index(self, position: int) -> int:
        """A position's place among the answer's choices, where the job does not pick."""
        prompt, i = divmod(position, self.width)
        return prompt * self.params.n + i
