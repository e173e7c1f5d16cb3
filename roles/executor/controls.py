"""Logit controls as arrays: what admits bring to the device's state, and which rows of a step have any.

The state itself is `kernels.apply_controls.State`; `control_state` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from stretto.kernels.apply_controls.state import BANS, BIAS, PENALTIES
from stretto.roles import messages as m

A = TypeVar("A")


class ControlUpdates(NamedTuple, Generic[A]):
    """What n newly admitted slots with controls hold. Pairs are (slot, token), int64 [e, 2]."""

    slots: A
    """int64 [n]"""
    kinds: A
    """int32 [n]"""
    prompt_lengths: A
    """int32 [n]"""
    min_tokens: A
    """int32 [n]"""
    presence: A
    """float32 [n]"""
    frequency: A
    """float32 [n]"""
    repetition: A
    """float32 [n]"""
    bans: A
    """int32 [n, w]: `State.bans`, filled up with zeros."""
    biased: A
    """int64 [b]: those of the slots that have biases."""
    fill: A
    """float32 [b]: what their rows hold where nothing else is said, 0 or -inf."""
    allowed: A
    """Pairs: tokens whose bias is 0 all the same."""
    bias_at: A
    """Pairs: tokens that have a bias."""
    bias: A
    """float32: one for each of `bias_at`."""
    penalised: A
    """int64 [p]: those of the slots whose tokens are counted."""
    prompt: A
    """Pairs: the tokens of their prompts."""
    output: A
    """Pairs: the tokens of their outputs so far."""
    past: A
    """int64 [e, 3]: (slot, position, token) of the outputs so far that bad words look at."""


class ControlledRows(NamedTuple, Generic[A]):
    """Those c of a step's sampled rows whose slots have controls."""

    rows: A
    """int64 [c]: their numbers among the sampled rows."""
    slots: A
    """int64 [c]"""
    positions: A
    """int64 [c]: the sampled tokens' places in their sequences."""


class _New(NamedTuple):
    """An admitted slot with controls."""

    slot: int
    controls: m.Controls
    kinds: int
    prompt_length: int
    prompt: np.ndarray
    """int32: its ids, or none where the controls do not look back."""
    output: np.ndarray
    """The same of the output so far."""


def kinds_of(controls: m.Controls | None) -> int:
    """Which controls are in effect, as in `State.kinds`; 0 where none is."""
    if controls is None:
        return 0
    penalties = (controls.presence_penalty, controls.frequency_penalty, controls.repetition_penalty)
    kinds = BIAS if controls.bias_ids or controls.allowed_ids else 0
    kinds |= BANS if len(_bans(controls)) > 1 else 0
    return kinds | (PENALTIES if penalties != (0.0, 0.0, 1.0) else 0)


def control_updates(admits: Iterable[m.Admit]) -> ControlUpdates[np.ndarray] | None:
    """What these admits bring; None where none of them has controls."""
    news = [new for admit in admits if (new := _new(admit)) is not None]
    if not news:
        return None
    controls = [new.controls for new in news]
    biased, banned, penalised = (
        [new for new in news if new.kinds & kind] for kind in (BIAS, BANS, PENALTIES)
    )
    return ControlUpdates(
        slots=_slots(news),
        kinds=np.array([new.kinds for new in news], np.int32),
        prompt_lengths=np.array([new.prompt_length for new in news], np.int32),
        min_tokens=np.array([each.min_tokens for each in controls], np.int32),
        presence=np.array([each.presence_penalty for each in controls], np.float32),
        frequency=np.array([each.frequency_penalty for each in controls], np.float32),
        repetition=np.array([each.repetition_penalty for each in controls], np.float32),
        bans=_table([_bans(each) for each in controls]),
        biased=_slots(biased),
        fill=np.array([-np.inf if new.controls.allowed_ids else 0.0 for new in biased], np.float32),
        allowed=_pairs((new.slot, _ids(new.controls.allowed_ids)) for new in biased),
        bias_at=_pairs((new.slot, _ids(new.controls.bias_ids)) for new in biased),
        bias=np.frombuffer(b"".join(new.controls.bias_values for new in biased), np.float32).copy(),
        penalised=_slots(penalised),
        prompt=_pairs((new.slot, new.prompt) for new in penalised),
        output=_pairs((new.slot, new.output) for new in penalised),
        past=_past(banned),
    )


def controlled_rows(
    kinds: np.ndarray, slots: np.ndarray, positions: np.ndarray
) -> ControlledRows[np.ndarray] | None:
    """Those of the sampled rows whose slot has controls; kinds: int32, of every slot."""
    rows = np.flatnonzero(kinds[slots])
    return ControlledRows(rows, slots[rows], positions[rows]) if len(rows) else None


def _new(admit: m.Admit) -> _New | None:
    controls = admit.sampling.controls
    kinds = kinds_of(controls)
    if controls is None or not kinds:
        return None
    history, length = _ids(admit.history), admit.prompt_length
    if len(history) < length and (kinds & PENALTIES or controls.bad_words):
        raise RuntimeError(f"the controls of slot {admit.slot} look back, but its tokens are not known")
    return _New(admit.slot, controls, kinds, length, history[:length], history[length:])


def _bans(controls: m.Controls) -> np.ndarray:
    """Runs of `State.bans`, int32, and the 0 that ends them."""
    early = _ids(controls.min_tokens_ids) if controls.min_tokens > 0 else _ids(b"")
    words = [_ids(word) for word in controls.bad_words if word]
    runs = [([len(word)], word) for word in words] + ([([-len(early)], early)] if len(early) else [])
    return np.concatenate([part for run in [*runs, ([0],)] for part in run]).astype(np.int32)


def _ids(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.int32)


def _slots(news: Sequence[_New]) -> np.ndarray:
    return np.array([new.slot for new in news], np.int64)


def _pairs(owned: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """(slot, id) for all ids of all slots, int64 [e, 2]."""
    parts = [np.stack([np.full(len(ids), slot), ids], axis=1) for slot, ids in owned]
    return np.concatenate([np.empty((0, 2), np.int64), *parts]).astype(np.int64)


def _past(news: Sequence[_New]) -> np.ndarray:
    """(slot, position, id) of all output tokens, int64 [e, 3]."""
    pairs = _pairs((new.slot, new.output) for new in news)
    places = [np.arange(new.prompt_length, new.prompt_length + len(new.output)) for new in news]
    return np.insert(pairs, 1, np.concatenate([np.empty(0, np.int64), *places]), axis=1)


def _table(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The rows one below the other, filled up with zeros; int32."""
    table = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for filled, row in zip(table, rows, strict=True):
        filled[: len(row)] = row
    return table
