"""Everything that only a GPU can tell, in one command of a few minutes that needs no network.

    python bench/gpu_check.py [--json FILE] [--wheels DIR] [--seconds N] [--only WORD] [--dry-run]

It verifies every Triton kernel against its reference (`bench.gpu_verify`), times kernels as a share of the
copy bandwidth and the matrix product that the machine is measured to have (`bench.gpu_kernels`,
`bench.gpu_ops`), and runs the real executor on random 1B and 8B Llamas in bfloat16, batches of 1, 8 and 64,
with and without graphs, one step ahead and in turn (`bench.gpu_steps`). Every unit of that is a line of
output and an entry of the JSON; a unit that fails costs only itself, even where it takes the GPU's context
with it: units run in a child, and the next child goes on behind the one that failed. The exit code is 1
where any failed.

The checkout need not be installed. It needs torch, triton, numpy, uvloop, safetensors (which transformers
brings), msgspec and xxhash. Where the last two are missing and there is no network, carry them: on a machine
that has one,

    pip download --no-deps --only-binary :all: --python-version 3.12 --dest wheels msgspec xxhash

with the Python version of the GPU's machine, and give that folder as --wheels. Wheels are unpacked to a
temporary folder at the end of the path, so what is installed wins; those for other versions are passed over.
numba, pyzmq and orjson are not needed: a GPU's path does not import them.

--dry-run does the same on the CPU with tiny shapes, kernels under Triton's interpreter: it proves the
command, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OPS = (
    "rms_norm",
    "silu_and_mul",
    "gelu_and_mul",
    "rope_and_cache",
    "paged_attention",
    "sample",
    "logprobs",
    "apply_controls",
    "count_tokens",
    "copy_pages",
    "move_pages",
    "prepare_step",
)
MODES = {"graphs ahead": (True, True), "graphs in turn": (True, False), "eager ahead": (False, True)}
"""Whether steps are replayed, and launched one ahead."""
UNIT_SECONDS = 150.0
"""A unit that takes longer hangs."""
MARK = "unit: "
"""What a child's lines of results begin with."""


def units(dry: bool) -> list[str]:
    """Names of all that is checked, what matters most first."""
    models, batches = (["tiny"], [1, 3]) if dry else (["8b", "1b"], [64, 8, 1])
    steps = [f"steps {model} {batch} {mode}" for model in models for batch in batches for mode in MODES]
    verified = [f"verify {op}" for op in OPS]
    return ["time kernels", *steps, *(f"prefill {model}" for model in models), "time ops", *verified]


# The child: runs units, one after the other.


def child(names: Sequence[str], dry: bool) -> None:
    """Run units and print a line of JSON for each; stops after one that leaves the GPU unusable."""
    if dry:
        from stretto.tests.interpreting import interpret

        interpret()
    import torch

    device = torch.device("cpu" if dry else "cuda")
    for name in names:
        began = time.perf_counter()
        try:
            result: dict[str, Any] = {"result": run(name, device)}
            if failures := result["result"].get("failures"):
                result["error"] = "\n".join(failures)
        except Exception:
            result = {"error": traceback.format_exc(limit=-6)}
        result |= {"unit": name, "seconds": round(time.perf_counter() - began, 2)}
        print(MARK + json.dumps(result), flush=True)
        gc.collect()  # graphs and pools of a unit that failed, too
        if not dry:
            torch.cuda.synchronize()  # raises where the context is lost, and ends this child
            torch.cuda.empty_cache()


def run(name: str, device: Any) -> Any:
    """What a unit found: figures, or how many cases passed."""
    kind, *rest = name.split(" ", 3)
    if kind == "verify":
        from stretto.bench.gpu_verify import verify

        return verify(rest[0], device, tiny=device.type == "cpu")._asdict()
    if kind == "time":
        return time_kernels(rest[0], device)
    return run_steps(kind, rest, device)


def time_kernels(which: str, device: Any) -> Any:
    """The rows of a bench of kernels."""
    import torch

    from stretto.bench import gpu_kernels, gpu_ops

    tiny = device.type == "cpu"
    cases = gpu_kernels.cases if which == "kernels" else gpu_ops.cases
    best = gpu_kernels.yardsticks(device, torch.bfloat16, tiny)
    measured = gpu_kernels.measure(device, tiny, best, cases)
    rows = [row._asdict() for row in measured.rows]
    return {"yardsticks": best._asdict(), "rows": rows, "failures": measured.failures}


def run_steps(kind: str, rest: list[str], device: Any) -> Any:
    """Decoding or prefill of a model, on a device of its own."""
    import torch

    from stretto.bench import gpu_steps
    from stretto.bench.gpu_kernels import yardsticks

    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    best = yardsticks(device, dtype, device.type == "cpu")
    place = make_device(device)
    try:
        if kind == "prefill":
            return gpu_steps.prefill(rest[0], place, dtype, best)._asdict()
        graphs, overlap = MODES[rest[2]]
        return gpu_steps.decode(rest[0], place, dtype, best, int(rest[1]), graphs, overlap)._asdict()
    finally:
        place.close()


def make_device(device: Any) -> Any:
    """The executor's device of that kind."""
    if device.type == "cpu":
        from stretto.roles.executor.device_cpu import CpuDevice

        return CpuDevice(lambda: None)
    from stretto.roles.executor.device_cuda import CudaDevice

    return CudaDevice(lambda: None)


# The parent: starts children until all units are done, or the time is up.


def check(
    names: Sequence[str], start: Callable[[Sequence[str]], subprocess.Popen[str]], end: float
) -> Iterator[Any]:
    """Results of all units, in order, by as many children as it takes; `end`: `time.monotonic()` seconds.

    A unit that a child dies of is tried again, by itself, but for one that had to be killed for its time.
    """
    left = list(names)
    while left and time.monotonic() < end:
        process = start(left)
        done = 0
        for result in follow(process, end):
            done += 1
            yield result
        left, hung = left[done:], process.returncode == -signal.SIGKILL
        if left and process.returncode and time.monotonic() < end and (hung or not done):
            yield {"unit": left.pop(0), "error": f"the child ended with {process.returncode}"}
    yield from ({"unit": name, "error": "no time was left"} for name in left)


def follow(process: subprocess.Popen[str], end: float) -> Iterator[Any]:
    """The results that a child prints, until it ends or has to: a unit may not take for ever."""
    timer = _limit(process, end)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MARK):
            timer.cancel()
            timer = _limit(process, end)
            yield json.loads(line.removeprefix(MARK))
        else:
            print(line, end="", file=sys.stderr)
    process.wait()
    timer.cancel()


def _limit(process: subprocess.Popen[str], end: float) -> threading.Timer:
    timer = threading.Timer(max(0.0, min(UNIT_SECONDS, end - time.monotonic())), process.kill)
    timer.start()
    return timer


def start_child(paths: Sequence[str], dry: bool, names: Sequence[str]) -> subprocess.Popen[str]:
    """A child for these units."""
    command = [sys.executable, __file__, "--units", json.dumps(names), *(["--dry-run"] if dry else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def prepare_path(folder: Path, wheels: str | None) -> list[str]:
    """Folders that children import from: this checkout under its package's name, and unpacked wheels."""
    (folder / "here").mkdir()
    (folder / "here" / "stretto").symlink_to(ROOT)
    tags = (f"cp{sys.version_info.major}{sys.version_info.minor}", "py3", "py2.py3", "abi3")
    for wheel in sorted(Path(wheels).glob("*.whl")) if wheels else ():
        if any(f"-{tag}-" in wheel.name for tag in tags):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder / "wheels")
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return [*known, str(folder / "here"), str(folder / "wheels")]


def describe(result: dict[str, Any]) -> str:
    """A result in a line or a few."""
    head = f"{result['unit']:28} "
    if "result" not in result:
        return head + "FAILED: " + result["error"].strip().splitlines()[-1]
    found = result["result"]
    told = [f"  FAILED: {text.splitlines()[0]}" for text in found.get("failures", ())]
    return "\n".join([head + _figures(found, result["seconds"]), *told])


def _figures(found: dict[str, Any], seconds: float) -> str:
    if "cases" in found:
        return f"{found['cases'] - len(found['failures'])} cases equal, {seconds} s"
    if "rows" in found:
        rates = found["yardsticks"]
        copy, product = rates["bytes_per_second"] / 1e9, rates["flops_per_second"] / 1e12
        lines = [f"copy {copy:.0f} GB/s, product {product:.1f} TFLOP/s", *map(_line, found["rows"])]
        return "\n".join(lines)
    if "times_the_floor" in found:
        return (
            f"{found['tokens_per_second']:9.0f} tokens/s  step {found['step_microseconds']:8.0f} us = "
            f"{found['times_the_floor']:.2f} floors  host {found['host_microseconds']:6.0f} us  "
            f"idle {found['idle_fraction']:.2%}"
        )
    return f"{found['tokens_per_second']:9.0f} tokens/s  {found['product_share']:.1%} of product"


def _line(row: dict[str, Any]) -> str:
    shares = f"{row['copy_share']:6.1%} of copy, {row['product_share']:6.1%} of product"
    return f"  {row['op']:26} {row['shape']:20} {row['microseconds']:10.1f} us, {shares}"


def about(dry: bool) -> dict[str, Any]:
    """Machine and versions."""
    named = {name: _version(name) for name in ("torch", "triton", "numpy")}
    facts = {
        "python": sys.version.split()[0],
        "versions": named,
        "dry_run": dry,
        "host_cores": os.cpu_count(),
    }
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    if dry or shutil.which(query[0]) is None:
        return facts | {"gpu": ""}
    return facts | {"gpu": subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()}


def _version(name: str) -> str:
    """Of an installed package. Triton comes under other names, too."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not known"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="What only a GPU can tell.")
    parser.add_argument("--json", help="file to write all results to")
    parser.add_argument("--wheels", help="folder of wheels for what is not installed")
    parser.add_argument("--seconds", type=float, default=460.0, help="after which what is left is left out")
    parser.add_argument("--only", default="", help="units whose names have this in them")
    parser.add_argument("--dry-run", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--units", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.units:
        child(json.loads(options.units), options.dry_run)
        return 0
    names = [name for name in units(options.dry_run) if options.only in name]
    results: list[dict[str, Any]] = []
    facts = about(options.dry_run)
    with tempfile.TemporaryDirectory() as folder:
        start = partial(start_child, prepare_path(Path(folder), options.wheels), options.dry_run)
        for result in check(names, start, time.monotonic() + options.seconds):
            print(describe(result), flush=True)
            results.append(result)
            if options.json:
                everything = facts | {"results": results}
                Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")
    failed = sum("error" in result for result in results)
    print(f"{len(results) - failed} of {len(results)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path = [path for path in sys.path if Path(path).resolve() != ROOT / "bench"]  # it has a trace.py
    sys.exit(main())
