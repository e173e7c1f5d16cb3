"""vLLM's scheduler, driven without a model, in vLLM's virtual environment, which knows nothing of Stretto.

    PYTHON vllm_scheduler.py MODEL_DIR SEQUENCES STEPS WARM_STEPS PROMPT_TOKENS PAGE_SIZE

prints a JSON list: microseconds of `schedule` + `update_from_output` of each steady decode step, in which
every sequence gets a token. The work is that of `bench/scheduler.py`; the interfaces are those of vLLM 0.32.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main(
    model: str, sequences: int, steps: int, warm: int, prompt_tokens: int, page_size: int
) -> list[float]:
    """Microseconds of each step."""
    import numpy
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    scheduler = make_scheduler(model, sequences, prompt_tokens + warm + steps + 8, prompt_tokens, page_size)
    init_none_hash(sha256)
    hasher = get_request_block_hasher(page_size, sha256)
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=warm + steps + 4)
    params.update_from_generation_config({}, 2)
    rng = numpy.random.default_rng(0)
    for row in range(sequences):
        ids = rng.integers(1, 40_000, prompt_tokens - row % page_size).tolist()
        request = Request(
            request_id=str(row),
            prompt_token_ids=ids,
            sampling_params=params,
            pooling_params=None,
            block_hasher=hasher,
        )
        scheduler.add_request(request)
    return [step(scheduler) for _ in range(warm + steps)][warm:]


def make_scheduler(model: str, sequences: int, longest: int, prompt_tokens: int, page_size: int) -> Any:
    """The scheduler that vLLM's engine would choose, over a pool that never runs out."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = EngineArgs(
        model=model,
        dtype="float32",
        max_model_len=longest,
        max_num_seqs=sequences,
        max_num_batched_tokens=max(sequences * prompt_tokens, longest),
        block_size=page_size,
    ).create_engine_config()
    blocks = sequences * (longest // page_size + 2)
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=page_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=page_size,
        hash_block_size=page_size,
    )


def step(scheduler: Any) -> float:
    """Microseconds of one step; what a model runner would answer is made outside of them."""
    from vllm.v1.outputs import ModelRunnerOutput

    start = time.perf_counter()
    output = scheduler.schedule()
    planned = time.perf_counter()
    ids = list(output.num_scheduled_tokens)
    answer = ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={name: row for row, name in enumerate(ids)},
        sampled_token_ids=[[7]] * len(ids),
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    resumed = time.perf_counter()
    scheduler.update_from_output(output, answer)
    return 1e6 * (planned - start + time.perf_counter() - resumed)


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no part of the answer
    json.dump(main(sys.argv[1], *map(int, sys.argv[2:])), channel)
    channel.flush()
    os._exit(0)
