import os
import subprocess
import sys
from pathlib import Path

import pytest

from stretto.kernels import cache

DAY = 86400.0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept, for as long as the test runs."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    return tmp_path


def kept(root: Path, name: str, used: float) -> Path:
    """A directory of another version, last used then."""
    folder = root / name
    (folder / "pool").mkdir(parents=True)
    os.utime(folder, (used, used))
    return folder


def test_kernels_are_kept_below_the_root_by_the_digest_of_their_sources(root):
    folder = cache.use(str(root))
    assert folder == root / f"kernels-{cache.source_digest()}"
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


def test_one_process_at_a_time_has_a_kernel(root):
    cache.use(str(root))
    with cache.claim("a"):
        with pytest.raises(cache.Busy, match="a"), cache.claim("a", wait=False):
            pass
        with cache.claim("b", wait=False):
            pass
    with cache.claim("a", wait=False):
        pass


def test_a_claim_ends_with_its_process(root):
    cache.use(str(root))
    code = "from stretto.kernels import cache\nwith cache.claim('a'):\n print(flush=True)\n input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(cache.Busy), cache.claim("a", wait=False):
            pass
        holder.kill()
        with cache.claim("a"):
            pass


def test_without_a_directory_there_is_nothing_to_claim(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    with cache.claim("a"), cache.claim("a", wait=False):
        pass


def test_what_nobody_has_used_for_days_is_removed(root):
    old, young = kept(root, "kernels-1", 0.0), kept(root, "kernels-2", 2 * DAY)
    half_removed, model = kept(root, "kernels-3.doomed", 9 * DAY), kept(root, "models", 0.0)
    cache.remove_unused(str(root), now=(cache.KEPT_DAYS + 1) * DAY)
    assert [path.exists() for path in (old, young, half_removed, model)] == [False, True, False, True]


def test_what_is_in_use_is_not_removed_however_old(root):
    folder = cache.use(str(root))
    os.utime(folder, (0, 0))
    cache.remove_unused(str(root))
    assert folder.exists()


def test_use_makes_a_directory_young(root):
    folder = kept(root, f"kernels-{cache.source_digest()}", 0.0)
    cache.use(str(root))
    assert folder.stat().st_mtime > DAY


def test_removing_from_nowhere_is_no_error(tmp_path):
    cache.remove_unused(str(tmp_path / "missing"))
