"""Compile the Triton kernels for every GPU generation, without a GPU, and read what they take.

    python -m stretto.kernels.compiled            print registers, shared memory and spills
    python -m stretto.kernels.compiled --write    and write them to `kernels/resources.json`
    python -m stretto.kernels.compiled --check    fail where that file is not true

A check compares the intermediate code of all cases with what the file was made from, which is quick, and
compiles one case of each op; with --all, every one.

An op with Triton kernels has a module `kernels/<op>/cases.py`, whose `cases(capability)` yields a name and a
call of the op's launcher for each of the argument types and sizes that make other code. The calls are made
with tensors on the CPU; instead of a launch, the kernel is compiled as that launch would have it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from stretto.kernels import resources
from stretto.kernels.generation import CAPABILITIES, pretend
from stretto.kernels.resources import read_resources


class Case(NamedTuple):
    """A call of an op's launcher."""

    name: str
    call: Callable[[], None]


def ops() -> list[str]:
    """The ops that have Triton kernels."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))


def cases(op: str, capability: int) -> dict[str, Case]:
    """An op's cases by name. Raises ValueError if two have one name."""
    found = [Case(*pair) for pair in import_module(f"stretto.kernels.{op}.cases").cases(capability)]
    named = {case.name: case for case in found}
    if len(named) < len(found):
        raise ValueError(f"two cases of {op} have one name")
    return named


def digest(code: str, options: Any) -> str:
    """Of Triton's intermediate code, without its places in the source, and of the compiler's options."""
    bare = re.sub(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|^#loc.*$", "", code, flags=re.MULTILINE)
    flags = (options.num_warps, options.num_stages, options.enable_fp_fusion)
    return hashlib.sha256(f"{bare}{flags}".encode()).hexdigest()[:12]


Row = list[int | str]


@contextmanager
def compiling(capability: int, done: Callable[[str, Row], None], whole: bool = True) -> Iterator[None]:
    """Within, launches compile their kernel and do not run it; done hears the kernel's name and row.

    It stands in for `JITFunction.run`, and like it derives types, divisibility and constants from arguments.
    If not whole, only the intermediate code is made, and the row is its digest.
    """
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)

    def lower(source: Any, options: Any) -> str:
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(options), backend.get_module_map()
        return digest(str(source.make_ir(target, options, *functions, context)), options)

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        bind = create_function_from_signature(self.signature, self.params, backend)
        bound, specialization, options = bind(*args, **kwargs)
        options, signature, constants, attributes = self._pack_args(
            backend, kwargs | {"debug": False}, bound, specialization, options
        )
        source = ASTSource(self, signature, constants, attributes)
        row: Row = [lower(source, options)]
        if whole:
            kernel = triton.compile(source, target=target, options=options.__dict__)
            row = list(read_resources(kernel, str(row[0])))
        done(self.fn.__name__, row)

    launch, JITFunction.run = JITFunction.run, run
    try:
        with pretend(capability):
            yield
    finally:
        JITFunction.run = launch


class Work(NamedTuple):
    """One case for one compute capability."""

    capability: int
    op: str
    case: str
    whole: bool


def measure(work: Work) -> resources.Rows:
    """The rows of the kernels of one case. Raises RuntimeError if there are none."""
    rows: resources.Rows = {}

    def done(kernel: str, row: Row) -> None:
        rows[f"{work.op} {work.case}: {kernel}"] = row

    with compiling(work.capability, done, work.whole):
        cases(work.op, work.capability)[work.case].call()
    if not rows:
        raise RuntimeError(f"the case {work.case} of {work.op} launched nothing")
    return rows


def compile_all(
    names: Iterable[str], capabilities: Iterable[int], processes: int, whole: bool
) -> resources.Table:
    """The rows of all cases of some ops; if not whole, digests alone but for the first case of each op."""
    work = [
        Work(target, op, name, whole or index == 0)
        for target in capabilities
        for op in names
        for index, name in enumerate(cases(op, target))
    ]
    table: resources.Table = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        for one, rows in zip(work, pool.map(measure, work, chunksize=4), strict=True):
            table.setdefault(one.capability, {}).update(rows)
    return table


def check(table: resources.Table, version: str, names: set[str]) -> list[str]:
    """Where the checked-in table says otherwise; another Triton compiles otherwise, and is not compared."""
    recorded, expected = resources.load()
    if recorded != version:
        return []
    return resources.differences(resources.of_ops(expected, names), table)


def main() -> int:
    """Run the command line."""
    import triton

    parser = argparse.ArgumentParser(prog="python -m stretto.kernels.compiled", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("ops", nargs="*", help="what to compile (default: every op)")
    parser.add_argument("--capability", type=int, action="append", help="80, 90 or 100 (default: all three)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the rows of these ops to the table")
    parser.add_argument("--check", action="store_true", help="fail where the table is not true")
    parser.add_argument("--all", action="store_true", help="to check, compile everything")
    options = parser.parse_args()
    names = set(options.ops or ops())
    whole = options.all or not options.check
    found = compile_all(sorted(names), options.capability or CAPABILITIES, options.processes, whole)
    wrong = check(found, triton.__version__, names) if options.check else []
    print(*(wrong if options.check else resources.show(found)), sep="\n")
    if options.write:
        old = resources.load()[1] if resources.TABLE.exists() else {}
        resources.TABLE.write_text(resources.render(triton.__version__, resources.merge(old, found, names)))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
