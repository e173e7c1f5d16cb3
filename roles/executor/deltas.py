"""A plan as the few numbers that `kernels.prepare_step` makes a step of, on the device."""

from __future__ import annotations

import numpy as np

from stretto.kernels.prepare_step.state import Deltas
from stretto.roles import messages as m


def deltas_of(plan: m.Plan) -> Deltas[np.ndarray]:
    """The plan's slots, pages and tokens; no array is longer than what it says, and none is computed."""
    admits = np.array([(admit.slot, admit.length) for admit in plan.admits], np.int32).reshape(-1, 2)
    pages = [_owned(admit.slot, np.frombuffer(admit.pages, np.int32)) for admit in plan.admits]
    appends = np.concatenate([*pages, _ints(plan.growth, 2)])
    chunks, decodes = _ints(plan.chunks, 3), np.frombuffer(plan.decodes, np.int32)
    counts = np.array([len(part) for part in (admits, appends, chunks, decodes)], np.int32)
    return Deltas(counts, admits, appends, chunks, np.frombuffer(plan.chunk_ids, np.int32), decodes)


def _owned(slot: int, pages: np.ndarray) -> np.ndarray:
    """(slot, page) for all pages, int32 [n, 2]."""
    return np.stack([np.full_like(pages, slot), pages], axis=1)


def _ints(data: bytes, width: int) -> np.ndarray:
    return np.frombuffer(data, np.int32).reshape(-1, width)
