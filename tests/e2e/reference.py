"""The oracle of greedy answers: transformers in float32, on the very weights that a server on a CPU computes
with.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from stretto.kernels.linear import stepped
from stretto.roles.executor.weights.safetensors_dir import Weights


def reference_model(model_dir: str | Path) -> Any:
    """A model directory's causal language model; matrices that are stored as steps are what these say, where
    `model.safetensors` has them rounded to float16.
    """
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    weights = Weights(model_dir)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if (steps := weights.steps(name)) is not None:
                parameter.copy_(stepped.weights(steps))
    return model
