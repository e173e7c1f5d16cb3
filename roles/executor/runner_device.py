"""The runner of a GPU: the host says what changes, and the device makes the step's rows.

What crosses for a step of decodes is one array: the pages that sequences grow by, and which slots decode.
Everything else, positions, ids, places in the cache, lengths, block tables, lies on the device or is made
there by `kernels.prepare_step`. Steps of decodes alone are `decode_steps`, others are launched kernel by
kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from stretto.kernels.copy_pages import copy_pages
from stretto.kernels.prepare_step import SlotState, prepare_step
from stretto.roles import messages as m
from stretto.roles.executor.buckets import width_of
from stretto.roles.executor.decode_steps import DecodeSteps, context_of, new_inputs, rows_of
from stretto.roles.executor.delta_batch import DeltaBatch, make_delta_batch
from stretto.roles.executor.landing import Landing
from stretto.roles.executor.runner import Runner, scorer_of
from stretto.roles.executor.scorer import Scorer
from stretto.roles.executor.slots import SAMPLING


class DeviceRunner(Runner):
    """See `Runner`. graphs: whether steps of decodes are captured and replayed; the tokens are the same."""

    spare_slots = 1

    def __init__(self, *, graphs: bool = True, **rest: Any) -> None:
        super().__init__(**rest)
        slots, place = len(self._state.last_token), self._device.torch_device
        lengths, counts = torch.zeros(2, slots, dtype=torch.int32, device=place)
        self._slot_state = SlotState(lengths, counts, self._state.table, self._state.last_token)
        self._decode = DecodeSteps(
            self._device, self._model, self._cache, self._slot_state, self._sampler, graphs
        )
        self._stream.catch_up()  # the zeros above are not there before the host has had them written

    def _make_batch(self, plan: m.Plan) -> DeltaBatch[Any]:
        return make_delta_batch(plan, self._mirror, self._model.vocab_size)

    # What follows runs on the stream.

    def _execute(self, batch: Any, landing: Landing) -> None:
        tokens = landing.tokens.tensor[: batch.sizes.samples]
        scorer = scorer_of(batch, landing)
        if batch.bucket is not None:
            self._decode(batch, tokens, scorer)
        else:
            self._mixed(batch, tokens, scorer)

    def _mixed(self, batch: DeltaBatch[torch.Tensor], tokens: torch.Tensor, scorer: Scorer | None) -> None:
        """A step of any shape, launch by launch."""
        self._admit(batch)
        sizes, width = batch.sizes, self._state.table.shape[1]
        sequences = batch.layout.chunks + batch.layout.decodes
        inputs = new_inputs(sizes.rows, sequences, sizes.samples, width, self._device.torch_device)
        page_size = self._cache.keys.shape[2]
        prepare_step(self._slot_state, batch.layout.unpack(batch.packed), inputs, page_size)
        if sizes.rows:
            context = context_of(inputs, width_of(sizes.width, width), sizes.chunks)
            logits = self._model(inputs.ids, context, self._cache)
            self._sampler(logits, batch.with_rows(rows_of(inputs, sizes.samples)), tokens, scorer)

    def _admit(self, batch: DeltaBatch[torch.Tensor]) -> None:
        """What new slots want of sampling, and the pages that they copy."""
        if batch.updates is not None and len(batch.updates.slots):
            for name in SAMPLING:
                getattr(self._state, name)[batch.updates.slots] = getattr(batch.updates, name)
        if batch.control_updates is not None:
            self._controls.admit(batch.control_updates)
        if batch.updates is not None and len(batch.updates.copies):
            copy_pages(self._cache.keys, self._cache.values, batch.updates.copies)
