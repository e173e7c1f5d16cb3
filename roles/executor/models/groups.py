"""Layers in groups that share their pages: those of a group have the same need and write the same positions.

All groups have the same number of layers, so that a page of the pool serves any of them and memory moves
between groups; the last group of a kind may use its pages in part. As in vLLM's hybrid KV cache manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Groups(NamedTuple):
    """How a model's layers are spread over pages."""

    windows: tuple[int, ...]
    """Of each group: how many positions its layers look back on, their own among them; 0: all. The groups
    with 0 come first."""
    layers: int
    """Layers that one page holds."""
    places: tuple[tuple[int, int], ...]
    """Of each layer: its group, and its number there."""


def group_layers(windows: Sequence[int]) -> Groups:
    """Groups as large as the rarest kind of layer allows; `windows` has each layer's, 0 for none."""
    kinds = {window: [at for at, own in enumerate(windows) if own == window] for window in sorted({*windows})}
    size = min(map(len, kinds.values()))
    places, found = [(0, 0)] * len(windows), list[int]()
    for window, members in kinds.items():
        for number, layer in enumerate(members):
            places[layer] = len(found) + number // size, number % size
        found += [window] * -(-len(members) // size)
    return Groups(tuple(found), size, tuple(places))
