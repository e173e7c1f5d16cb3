"""The engines that `peers` compares: Stretto itself, and others in processes of their own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from stretto import __version__
from stretto.bench.runner import ENGINES
from stretto.roles.actor import SetupError
from stretto.roles.client import LLM
from stretto.roles.config import Config
from stretto.roles.executor.weights import sources
from stretto.roles.messages import SamplingParams
from stretto.roles.resolve import resolve

OWN = "stretto"
RUNNER = Path(__file__).with_name("runner.py")
EXIT_SECONDS = 30.0
"""What an engine gets to end by itself."""


class Engine(Protocol):
    """Whoever takes part."""

    facts: dict[str, Any]

    def run(self, prompts: list[list[int]], output_tokens: int) -> float:
        """Output tokens per second over one batch."""
        ...


def rate(name: str, tokens: int, wanted: int, seconds: float) -> float:
    """Tokens per second; raises `SetupError` where an engine did not do the work that the others did."""
    if tokens != wanted:
        raise SetupError(f"{name} made {tokens} tokens where {wanted} were asked for")
    return tokens / seconds


class Own:
    """Stretto, offline."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.facts = {"engine": OWN, "version": __version__}

    def run(self, prompts: list[list[int]], output_tokens: int) -> float:
        params = SamplingParams(max_tokens=output_tokens, temperature=0, ignore_eos=True)
        start = time.perf_counter()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        return rate(OWN, tokens, len(prompts) * output_tokens, seconds)


class Peer:
    """Another engine, in a process of its own; see `runner`. Raises `SetupError` when it has ended."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self._name, self._process = name, process
        self.facts = self._hear()

    def run(self, prompts: list[list[int]], output_tokens: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "output_tokens": output_tokens}) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        return rate(self._name, answer["output_tokens"], len(prompts) * output_tokens, answer["seconds"])

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SetupError(
                f"{self._name} ended with status {self._process.wait()}; its own words are above"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def peer(name: str, python: Path, model: str, threads: int) -> Iterator[Peer]:
    """An engine that has loaded its model, until the block ends."""
    line = [str(python), "-I", str(RUNNER), name, model, str(threads)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield Peer(name, process)
    finally:
        process.stdin.close()
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def named(engines: Sequence[str]) -> dict[str, Path]:
    """Interpreters as NAME=PYTHON; raises `click.UsageError`."""
    found = {}
    for text in engines:
        name, _, python = text.partition("=")
        if name not in ENGINES or not Path(python).is_file():
            raise click.UsageError(f"--engine {text}: give {' or '.join(ENGINES)}, =, and an interpreter")
        found[name] = Path(python)
    return found


def installed(home: Path) -> dict[str, Path]:
    """Interpreters of the engines that have a virtual environment."""
    places = {name: home / name / "bin" / "python" for name in ENGINES}
    return {name: path for name, path in places.items() if path.is_file()}


def models(model: str, names: Mapping[str, Path], home: Path) -> dict[str, str]:
    """What each of the engines loads. Raises `SetupError` if the model cannot be found or prepared."""
    directory = resolve(Config(model=model), lambda line: click.echo(f"stretto: {line}", err=True)).model_dir
    click.echo(f"MODEL_DIR is {directory}", err=True)
    source = sources.identify(model)
    paths = {"openvino": str(home / "openvino" / "model")}
    if isinstance(source, sources.GGUF):
        paths["llama.cpp"] = str(source.path)
    return {name: paths.get(name, directory) for name in names}
