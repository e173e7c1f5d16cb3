import subprocess
import sys

import pytest
from click.testing import CliRunner

from stretto.bench.cli import BENCHES, bench_command


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_is_a_command_that_reports(name: str) -> None:
    result = CliRunner().invoke(bench_command, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: bench {name}")
    assert "--json FILE" in result.output
    assert "--plot FILE.png" in result.output


def test_the_list_of_benches_imports_none_of_them() -> None:
    code = (
        "import sys\nfrom stretto.bench.cli import bench_command\n"
        "bench_command(['--help'], standalone_mode=False)\n"
        "print([m for m in sys.modules if m.startswith('stretto.bench.')], 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(line in out for line in ("One request at a time: TTFT, TPOT, ITL, E2E.", *BENCHES))
    assert out.splitlines()[-1] == "['stretto.bench.cli'] False"


def test_an_unknown_bench_is_refused() -> None:
    result = CliRunner().invoke(bench_command, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output
