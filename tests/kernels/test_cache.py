import os
import subprocess
import sys

from stretto.kernels import cache


def test_kernels_are_kept_below_the_root_by_the_digest_of_their_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    folder = cache.use(str(tmp_path))
    assert folder == tmp_path / f"kernels-{cache.source_digest()}"
    assert os.environ["NUMBA_CACHE_DIR"] == str(folder)


def test_a_second_process_finds_what_the_first_compiled(tmp_path):
    code = (
        f"from stretto.kernels import cache; cache.use({str(tmp_path)!r})\n"
        "import torch\n"
        "from stretto.kernels.linear import cpu, integer, rounding\n"
        "from stretto.kernels.linear.quantized import FORMATS\n"
        "from stretto.kernels.paged_attention.cpu import attention\n"
        "kinds = integer.product, integer.gather, rounding.rounding\n"
        "made = [kind(form) for kind in kinds for form in FORMATS.values()]\n"
        "for kernel in (*made, attention(16, 1), cpu.product(torch.float16)):\n"
        "    kernel.compile()"
    )
    found = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True)
        found.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")})
    assert sum(path.suffix == ".nbc" for path in found[0]) == 8
    assert found[0] == found[1]
