import io
import json
import signal
import subprocess
import sys
import time
import zipfile

from stretto.bench import gpu_check
from stretto.bench.gpu_verify import CASES


class Child:
    """Prints results for the first units it is given, then ends."""

    def __init__(self, names, alive, code=1):
        lines = [gpu_check.MARK + json.dumps({"unit": name, "result": name}) + "\n" for name in names[:alive]]
        self.stdout = io.StringIO("".join(["noise\n", *lines]))
        self.returncode = code if alive < len(names) else 0

    def wait(self):
        return self.returncode

    def kill(self):
        raise AssertionError


def run(*lives):
    """Three units, by children that live for so many units each."""
    left = list(lives)
    end = time.monotonic() + 1000
    return list(gpu_check.check(["a", "b", "c"], lambda names: Child(names, *left.pop(0)), end))


def test_a_child_does_all_units():
    assert [result["unit"] for result in run([3])] == ["a", "b", "c"]


def test_the_next_child_goes_on_behind_a_unit_that_ended_the_first():
    assert [result["result"] for result in run([1], [2])] == ["a", "b", "c"]


def test_a_unit_that_ends_its_child_without_a_word_is_passed_over():
    assert run([1], [0], [1]) == [
        {"unit": "a", "result": "a"},
        {"unit": "b", "error": "the child ended with 1"},
        {"unit": "c", "result": "c"},
    ]


def test_a_unit_that_had_to_be_killed_is_not_tried_again():
    assert run([1, -signal.SIGKILL], [1]) == [
        {"unit": "a", "result": "a"},
        {"unit": "b", "error": "the child ended with -9"},
        {"unit": "c", "result": "c"},
    ]


def test_a_unit_of_which_some_failed_shows_the_others_too():
    found = {"cases": 9, "failures": ["sample 3: Bad: it is off\nby one"]}
    told = gpu_check.describe({"unit": "verify sample", "seconds": 1.5, "result": found, "error": "much"})
    assert told.split("\n") == [
        f"{'verify sample':28} 8 cases equal, 1.5 s",
        "  FAILED: sample 3: Bad: it is off",
    ]


def test_a_machine_without_the_driver_s_tool_is_described(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert gpu_check.about(dry=False)["gpu"] == ""


def test_what_there_is_no_time_for_is_told():
    assert list(gpu_check.check(["a"], None, end=0.0)) == [{"unit": "a", "error": "no time was left"}]


def test_every_kernel_is_verified():
    assert tuple(CASES) == gpu_check.OPS
    assert {f"verify {op}" for op in CASES} < set(gpu_check.units(dry=False))


def test_wheels_of_this_python_are_unpacked(tmp_path):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / "wheels").mkdir()
    for name, python in (("mine", tag), ("pure", "py3"), ("old", "cp27")):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-1.0-{python}-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
    folder = tmp_path / "made"
    folder.mkdir()
    *_, here, wheels = gpu_check.prepare_path(folder, str(tmp_path / "wheels"))
    assert (folder / "here" / "stretto" / "bench" / "gpu_check.py").exists()
    assert here == str(folder / "here")
    assert sorted(path.name for path in (folder / "wheels").iterdir()) == ["mine", "pure"]
    assert wheels == str(folder / "wheels")


def test_a_dry_run_verifies_steps_and_reports(tmp_path):
    written = tmp_path / "out.json"
    command = [sys.executable, gpu_check.__file__, "--dry-run", "--json", str(written)]
    done = subprocess.run([*command, "--only", "tiny 1 graphs ahead"], capture_output=True, text=True)
    assert "1 of 1 passed" in done.stdout
    (result,) = json.loads(written.read_text())["results"]
    assert result["result"]["batch"] == 1
    assert result["result"]["times_the_floor"] > 0
    done = subprocess.run([*command, "--only", "verify count_tokens"], capture_output=True, text=True)
    assert done.stdout.split()[:5] == ["verify", "count_tokens", "1", "cases", "equal,"]
    assert done.returncode == 0
