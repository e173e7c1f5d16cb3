"""What a step costs beside its kernels, from the kernel's books."""

from __future__ import annotations

from pathlib import Path

from stretto.bench.overhead import Books, books, middle, shown


def _process(proc: Path, pid: int, threads: dict[int, tuple[int, int]], reads: int, writes: int) -> None:
    """A process of threads with (nanoseconds on a processor, voluntary switches)."""
    for tid, (nanoseconds, sleeps) in threads.items():
        task = proc / str(pid) / "task" / str(tid)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"{nanoseconds} 77 99\n")
        (task / "status").write_text(
            f"Name:\tZMQbg\nvoluntary_ctxt_switches:\t{sleeps}\nnonvoluntary_ctxt_switches:\t5\n"
        )
    (proc / str(pid) / "io").write_text(f"rchar: 9\nwchar: 9\nsyscr: {reads}\nsyscw: {writes}\n")


def test_a_role_is_all_its_threads(tmp_path: Path) -> None:
    _process(tmp_path, 7, {7: (3_000, 2), 9: (4_000, 3)}, reads=10, writes=4)
    assert books({"gateway": 7}, tmp_path) == {"gateway": Books(7.0, 5, 14)}


def test_the_executor_and_what_computes_for_it_are_told_apart(tmp_path: Path) -> None:
    _process(tmp_path, 7, {7: (3_000, 2), 8: (50_000, 90), 9: (60_000, 80)}, reads=1, writes=2)
    assert books({"executor": 7}, tmp_path) == {"executor": Books(3.0, 2, 3), "compute": Books(110.0, 170, 0)}


def test_what_was_used_is_the_difference() -> None:
    assert Books(9.5, 8, 7).since(Books(1.5, 2, 3)) == Books(8.0, 6, 4)


def _row(steps: int, us: float) -> dict[str, object]:
    figures = {
        "cpu_us_per_step": us,
        "cpu_us_per_token": us / 8,
        "sleeps_per_step": 1.0,
        "calls_per_step": 2.0,
    }
    return {"sequences": 8, "stream": True, "steps": steps, "roles": {"scheduler": figures}}


def test_rounds_come_to_their_median() -> None:
    assert middle([_row(90, 16.0), _row(110, 400.0), _row(100, 24.0)]) == _row(100, 24.0)


def test_the_table_has_a_line_for_each_role() -> None:
    assert shown([_row(100, 240.0)]).splitlines()[1].split() == [
        "8", "streamed", "scheduler", "240", "30.0", "1.00", "2.0",
    ]  # fmt: skip
