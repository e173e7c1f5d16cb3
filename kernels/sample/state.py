"""What the device keeps of every slot for sampling."""

from __future__ import annotations

from typing import NamedTuple

import torch


class State(NamedTuple):
    """A number for each slot, on the device that samples."""

    temperature: torch.Tensor
    """float32 [slots]; 0 takes the largest logit"""
    top_k: torch.Tensor
    """int32 [slots]; 0 or less keeps all"""
    top_p: torch.Tensor
    """float32 [slots]"""
    min_p: torch.Tensor
    """float32 [slots]"""
    seed: torch.Tensor
    """int64 [slots], the bits of an unsigned number"""
    last_token: torch.Tensor
    """int32 [slots], written: what was sampled last, 0 where there was no token"""
