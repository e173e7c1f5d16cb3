import pytest
import torch
from sampling import in_slots, slots_of
from triton import jit
from triton import language as tl

from stretto.kernels.rows_triton import largest
from stretto.kernels.sample import noise_triton, reference, triton
from stretto.kernels.sample.filters_triton import find_limits
from stretto.kernels.sample.noise import LARGEST

INF, NAN = float("inf"), float("nan")
SMALL = {80: {"split": 256, "block": 256, "near": 128}}
"""So that a small vocabulary has several splits, and a bucket several blocks."""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(triton, "CONFIGS", SMALL)


def draw(
    logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seeds=0, positions=0, function=triton.sample
):
    """Tokens of the rows of `logits`; each parameter is one number for all rows or a list."""
    rows = len(logits)

    def column(value, dtype):
        return torch.as_tensor(value, dtype=dtype).expand(rows).contiguous()

    reals = [column(value, torch.float32) for value in (temperature, top_p, min_p)]
    longs = [column(value, torch.int64) for value in (seeds, positions)]
    state = in_slots(reals[0], column(top_k, torch.int32), *reals[1:], longs[0])
    out = torch.full((rows,), -7, dtype=torch.int32)
    function(logits, slots_of(rows), longs[1], state, out)
    assert state.last_token[slots_of(rows)].tolist() == out.clamp(min=0).tolist()
    assert (state.last_token == -7).sum() == rows + 1
    return out


@pytest.mark.parametrize(("rows", "size"), [(2, 1), (4, 3), (6, 63), (6, 700)])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "tied"])
def test_every_token_equals_the_references(rows, size, rounded):
    wide = torch.randn(rows, 2 * size) * 3
    logits = (wide.round() if rounded else wide)[:, :size]
    some = [torch.rand(rows) > 0.3 for _ in range(4)]
    parameters = {
        "temperature": torch.rand(rows) * 2 * some[0],
        "top_k": torch.randint(-1, size + 2, (rows,)) * some[1],
        "top_p": torch.where(some[2], torch.rand(rows), 1.0),
        "min_p": torch.rand(rows) * some[3] * 0.2,
        "seeds": torch.randint(-(2**63), 2**63 - 1, (rows,)),
        "positions": torch.randint(2**40, (rows,)),
    }
    assert torch.equal(draw(logits, **parameters), draw(logits, **parameters, function=reference.sample))


FILTERS = [
    {"top_k": 1},
    {"top_k": 299},
    {"top_p": 0.0},
    {"top_p": 0.9},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 250, "top_p": 0.99, "min_p": 0.001},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_limits_equal_the_references(filters):
    """The depths to the bit, for logits close together, far apart, and all equal."""
    logits = torch.randn(3, 300) * torch.tensor([[0.01], [30.0], [0.0]])
    wanted = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
    columns = [torch.full((3,), wanted[name]) for name in wanted]
    state = in_slots(torch.ones(3), *columns, torch.zeros(3))
    limits = find_limits(logits, largest(logits, 256), slots_of(3), state, SMALL[80])
    assert limits.tolist() == [reference.deepest(row.max() - row, **wanted).item() for row in logits]


@jit
def noise_kernel(out: tl.tensor, seed: tl.tensor, position: tl.tensor, first: tl.tensor) -> None:
    noise = noise_triton.gumbel(noise_triton.words(seed, position, first, 256))
    tl.store(out + tl.arange(0, 256), noise)


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_noise_equals_the_references(nan, seed):
    out = nan(256)
    noise_kernel[(1,)](out, seed, 2**33 + 5, 512)
    assert torch.equal(out, reference.gumbel(seed, 2**33 + 5, 768, out.device)[512:])


@jit
def gumbel_kernel(out: tl.tensor, bits: tl.tensor) -> None:
    at = tl.arange(0, 8)
    tl.store(out + at, noise_triton.gumbel(tl.load(bits + at).to(tl.uint32)))


def test_the_rarest_words_give_finite_noise_in_order(nan):
    words, out = torch.tensor([0, 1, 2, 2**31, 2**32 - 300, 2**32 - 100, 2**32 - 2, 2**32 - 1]), nan(8)
    gumbel_kernel[(1,)](out, words)
    assert out.isfinite().all()
    assert out.tolist() == sorted(out.tolist(), reverse=True)
    assert out[0] < LARGEST


def test_greedy_takes_the_first_of_equal_largest():
    logits = torch.zeros(4, 600)
    logits[0, [340, 570]] = 1.0
    logits[1, 599] = 1.0
    logits[3] = -0.0
    logits[3, 300:] = 0.0
    assert draw(logits, temperature=0.0).tolist() == [340, 599, 0, 0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_distribution_give_minus_one(temperature):
    logits = torch.randn(4, 300)
    logits[0, 299] = NAN
    logits[1] = -INF
    logits[2, 0] = INF
    tokens = draw(logits, temperature=temperature, top_p=0.9, top_k=5).tolist()
    assert tokens[:3] == [-1, -1, -1]
    assert 0 <= tokens[3] < 300


def test_tokens_at_minus_infinity_are_never_drawn():
    logits = torch.full((4, 300), -INF)
    logits[:, [17, 283]] = 0.0
    tokens = draw(logits, seeds=torch.arange(4), top_k=50 * (torch.arange(4) % 2), top_p=0.99)
    assert tokens.unique().tolist() == [17, 283]
