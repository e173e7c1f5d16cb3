import math

import pytest
import torch

from stretto.bench import perplexity


def test_a_text_is_cut_into_windows_that_predict_something():
    assert perplexity.windows([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4]]
    assert perplexity.windows([1, 2, 3, 4, 5], 3) == [[1, 2, 3], [4, 5]]


def test_sums_of_a_comparison():
    expected = torch.tensor([[0.5, 0.5 - 1e-6, 1e-6], [0.25, 0.25, 0.5]]).log()
    logprobs = torch.tensor([[0.25, 0.75 - 1e-6, 1e-6], [0.25, 0.25, 0.5]]).log()
    loss, same, divergence = perplexity.compare(logprobs, expected, torch.tensor([0, 2])).tolist()
    assert loss == pytest.approx(math.log(4) + math.log(2))
    assert same == 1
    assert divergence == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), abs=1e-5)


def test_the_documentation_is_the_default_text():
    assert perplexity.documentation().startswith("# ")


def test_each_precision_is_a_row_and_the_first_is_the_reference(model_dir):
    rows = perplexity.measure(str(model_dir), [list(range(1000, 1040)), [7, 8, 9]])
    assert [row.precision for row in rows] == ["none", "int8", "int4", *perplexity.SMALL_KV]
    assert (rows[0].top1, rows[0].divergence) == (1.0, 0.0)
    for row in rows[1:]:
        assert 0 < row.divergence < 0.1
        assert row.perplexity == pytest.approx(rows[0].perplexity, rel=0.2)
        assert 0.8 < row.top1 <= 1
