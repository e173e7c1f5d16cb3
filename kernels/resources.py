"""What compiled kernels take of a multiprocessor, and the checked-in table of it, `resources.json`."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).parent / "resources.json"


class Resources(NamedTuple):
    """Of one kernel, for one compute capability."""

    warps: int
    stages: int
    registers: int
    """Per thread."""
    shared: int
    """Bytes of shared memory per block."""
    spilled: int
    """Bytes of local memory per thread: registers that did not fit."""
    digest: str
    """Of the code and options that were compiled, as `compiled.digest` has it."""


Rows = dict[str, list[int | str]]
"""By "op case: kernel", `Resources` as a list; or, where nothing was compiled, of the digest alone."""
Table = dict[int, Rows]
"""By compute capability times ten."""


def read_resources(kernel: Any, digest: str) -> Resources:
    """Of what `triton.compile` returns."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text))
    spilled = int(used["STACK"]) + int(used["LOCAL"])
    meta = kernel.metadata
    return Resources(meta.num_warps, meta.num_stages, int(used["REG"]), meta.shared, spilled, digest)


def load(path: Path = TABLE) -> tuple[str, Table]:
    """The version of Triton that made the table, and the table."""
    content = json.loads(path.read_text())
    return content["triton"], {int(key): rows for key, rows in content.items() if key.isdigit()}


def render(version: str, table: Table) -> str:
    """The text of the file: JSON, a line a kernel."""
    head = [f'"triton": {json.dumps(version)}', f'"columns": {json.dumps(Resources._fields)}']
    return "{\n" + ",\n".join(head + [_block(target, table[target]) for target in sorted(table)]) + "\n}\n"


def _block(target: int, rows: Rows) -> str:
    lines = (f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items()))
    return f'"{target}": {{\n' + ",\n".join(lines) + "\n}"


def show(table: Table) -> Iterator[str]:
    """The table for people, a line a kernel."""
    yield "capability " + "".join(f"{name:>10}" for name in Resources._fields[:-1]) + "  kernel"
    for target in sorted(table):
        for key, row in sorted(table[target].items()):
            yield f"{target / 10:10} " + "".join(f"{number:10}" for number in row[:-1]) + f"  {key}"


def of_ops(table: Table, ops: set[str]) -> Table:
    """The rows of some ops."""
    return {
        target: {key: row for key, row in rows.items() if key.split()[0] in ops}
        for target, rows in table.items()
    }


def merge(old: Table, new: Table, ops: set[str]) -> Table:
    """The old table with the rows of some ops, for the capabilities of the new one, replaced by new ones."""
    merged = {target: dict(rows) for target, rows in old.items()}
    for target, rows in new.items():
        kept = {key: row for key, row in merged.get(target, {}).items() if key.split()[0] not in ops}
        merged[target] = kept | rows
    return merged


def differences(old: Table, new: Table) -> list[str]:
    """A line for each kernel that one table lacks or has otherwise, as far as the new rows say."""
    return [
        f"{target / 10} {key}: the table says {before}, it is {after}"
        for target in sorted(new)
        for key in sorted(old.get(target, {}).keys() | new[target].keys())
        for before, after in [(old.get(target, {}).get(key), new[target].get(key))]
        if before is None or after is None or before[-len(after) :] != after
    ]
