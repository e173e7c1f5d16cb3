"""The device's state of logit controls: written by admits and by every step that samples, read by the next.

So a step that is launched before the last one's tokens are known still sees them. Nothing is allocated
before a request with controls comes. Then every slot gets room for a bias and a count of each token and for
the ids of a full context, 8 V + 4 L bytes: 64 slots of 49,152 tokens and a context of 8,192 are 27 MB, of
which a CPU commits what controlled slots touch.
"""

from __future__ import annotations

import torch

from stretto.kernels.apply_controls import IN_OUTPUT, IN_PROMPT, State, apply_controls
from stretto.kernels.count_tokens import count_tokens
from stretto.roles.executor.controls import ControlledRows, ControlUpdates

COLUMNS = ("kinds", "prompt_lengths", "min_tokens", "presence", "frequency", "repetition")
"""What is one number for each slot."""


class ControlState:
    """All methods run on the compute stream."""

    def __init__(self, slots: int, vocabulary: int, context: int, place: torch.device) -> None:
        self._slots, self._vocabulary, self._context, self._place = slots, vocabulary, context, place
        self._state: State | None = None

    def admit(self, updates: ControlUpdates[torch.Tensor]) -> None:
        """Write what new slots hold."""
        state = self._state = self._with_room(updates.bans.shape[1])
        for name in COLUMNS:
            getattr(state, name)[updates.slots] = getattr(updates, name)
        state.bans[updates.slots, : updates.bans.shape[1]] = updates.bans
        state.bias[updates.biased] = updates.fill.unsqueeze(1)
        state.bias[updates.allowed.unbind(1)] = 0.0
        state.bias[updates.bias_at.unbind(1)] += updates.bias
        state.seen[updates.penalised] = 0
        state.seen[updates.prompt.unbind(1)] = IN_PROMPT
        each = torch.full_like(updates.output[:, 0], IN_OUTPUT, dtype=torch.int32)
        state.seen.index_put_(updates.output.unbind(1), each, accumulate=True)
        slots, positions, tokens = updates.past.unbind(1)
        state.history[slots, positions] = tokens.int()

    def apply(self, logits: torch.Tensor, controlled: ControlledRows[torch.Tensor]) -> None:
        """Change the logits of a step's controlled rows, in place."""
        apply_controls(logits, *controlled, self._known())

    def count(self, tokens: torch.Tensor, controlled: ControlledRows[torch.Tensor]) -> None:
        """Note the tokens that a step sampled; tokens: int32, of all its sampled rows, none negative."""
        state = self._known()
        new = tokens.index_select(0, controlled.rows)
        count_tokens(state.seen, state.history, controlled.slots, controlled.positions, new)

    def _known(self) -> State:
        if self._state is None:
            raise RuntimeError("a step has rows with controls, but no slot was admitted with any")
        return self._state

    def _with_room(self, bans: int) -> State:
        """The state, made when there is none, with so many numbers for bans in each slot."""
        state = self._state or self._make()
        if state.bans.shape[1] >= bans:
            return state
        wider = self._empty(torch.int32, 1 << (bans - 1).bit_length())
        wider[:, : state.bans.shape[1]] = state.bans
        return state._replace(bans=wider)

    def _make(self) -> State:
        ints, reals = torch.int32, torch.float32
        return State(
            kinds=self._empty(ints),
            bias=self._empty(reals, self._vocabulary),
            bans=self._empty(ints, 16),
            seen=self._empty(ints, self._vocabulary),
            history=self._empty(ints, self._context + 1),
            prompt_lengths=self._empty(ints),
            min_tokens=self._empty(ints),
            presence=self._empty(reals),
            frequency=self._empty(reals),
            repetition=self._empty(reals),
        )

    def _empty(self, dtype: torch.dtype, *width: int) -> torch.Tensor:
        return torch.empty(self._slots, *width, dtype=dtype, device=self._place)
