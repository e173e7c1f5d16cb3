from types import SimpleNamespace

import pytest
import torch

from stretto.bench import gpu_verify
from stretto.bench.gpu_verify import CASES, Case, compare, to
from stretto.kernels.count_tokens import reference
from stretto.kernels.paged_attention import triton_plan
from stretto.kernels.prepare_step.state import SlotState


def test_every_case_writes_what_it_says():
    for op, cases in CASES.items():
        for case in cases(True):
            assert case.written, op
            assert all(isinstance(case.arguments[number], (torch.Tensor, tuple)) for number in case.written)


def test_what_differs_by_more_than_a_few_roundings_is_found():
    one = torch.ones(3, dtype=torch.bfloat16)
    compare("op", one * 1.01, one, exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", one * 1.05, one, exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", one * 1.01, one, exact=True)


def test_a_nan_that_the_reference_has_not_is_found():
    compare("op", torch.tensor([float("nan")]), torch.tensor([float("nan")]), exact=False)
    with pytest.raises(AssertionError, match="op"):
        compare("op", torch.tensor([float("nan")]), torch.tensor([1.0]), exact=False)


def test_a_case_that_fails_costs_itself_alone(monkeypatch):
    def cases(tiny):
        yield from (good, good._replace(shape="odd", function="none"), good._replace(shape="off"))

    def kernel(seen, *rest):
        reference.count_tokens(seen, *rest)
        seen[0, 0] += calls.pop()

    (good,), calls = CASES["count_tokens"](True), [1, 0]
    monkeypatch.setitem(CASES, "count_tokens", cases)
    monkeypatch.setattr(gpu_verify, "import_module", lambda name: kinds[name.rsplit(".", 1)[1]])
    kinds = {"triton": SimpleNamespace(count_tokens=kernel), "reference": reference}
    count, (odd, off) = gpu_verify.verify("count_tokens", torch.device("cpu"), tiny=True)
    assert count == 3
    assert odd.startswith("count_tokens odd: AttributeError: ")
    assert off.startswith("count_tokens off: AssertionError: count_tokens off: ")


def test_runs_that_leave_other_bits_are_found():
    """The second run is of a constant that the kernel minds."""

    def kernel(out):
        out += torch.tensor(1 + 2.0**-20 * (triton_plan.JOINED == 3))

    reference = SimpleNamespace(add=lambda out: out.add_(1))
    case = Case("", "add", (torch.zeros(2),), (0,), plans=({}, {"JOINED": 4}))
    gpu_verify.check("op", case, kernel, reference, torch.device("cpu"))
    case = case._replace(plans=({}, {"JOINED": 3}))
    with pytest.raises(AssertionError, match=r"op, \{'JOINED': 3\}"):
        gpu_verify.check("op", case, kernel, reference, torch.device("cpu"))


def test_chunks_over_long_contexts_are_shared_and_then_not():
    cases = [case for case in CASES["paged_attention"](True) if len(case.plans) > 1]
    types = {(case.arguments[2].dtype, case.options["window"]) for case in cases}
    assert types == {(kind, seen) for kind in (torch.bfloat16, torch.float8_e4m3fn) for seen in (0, 70)}
    assert all(case.plans[1] == case.plans[0] | {"SCRATCH_LIMIT": 1} for case in cases)
    assert all(case.arguments[6].max() > 2 * case.plans[0]["CHUNK_SPLIT"] for case in cases)


def test_copies_share_nothing_with_the_originals():
    state = SlotState(*(torch.zeros(2, dtype=torch.int32) for _ in range(4)))
    copied = to(state, torch.device("cpu"))
    copied.lengths[0] = 5
    assert isinstance(copied, SlotState)
    assert state.lengths.tolist() == [0, 0]
