"""A model that says what is written, and notices pages that are not its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted import BOS, EOS, make_model, say

from stretto.roles import messages as m
from stretto.roles.executor.models.interface import Model
from stretto.roles.executor.weights import layout
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.prepare import prepare

GREEDY = m.Sampling()


@pytest.fixture
def script(tmp_path: Path, load_model: Callable[..., Model]) -> Callable[..., Model]:
    return lambda *scripts, **more: load_model(make_model(tmp_path, scripts, **more))


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_steps_belong_to_positions_and_the_last_repeats(
    script: Any, make_bench: Any, page_size: int, chunk: int
) -> None:
    model = script([7, 8, 9, 10, 11])
    assert make_bench(model, page_size).generate([[65, 66, 67]], 4, chunk) == [[9, 10, 11, 11]]


def test_a_script_may_begin_after_the_prompt(script: Any, make_bench: Any) -> None:
    model = script(say("Hi", prompt=3))
    assert make_bench(model).generate([[65, 66, 67]], 4) == [[72, 105, EOS, EOS]]


def test_the_first_token_selects_the_script(script: Any, make_bench: Any) -> None:
    model = script([1], [2], [3])
    prompts = [[0, 9], [1, 9], [5, 0], [BOS]]
    assert make_bench(model).generate(prompts, 2) == [[1, 1], [2, 2], [3, 3], [2, 2]]


def test_a_step_may_give_several_logits(script: Any, make_bench: Any, recorder: Any) -> None:
    model = recorder(script([{3: 1.5, 4: -2.0}]))
    assert make_bench(model).generate([[0]], 1) == [[3]]
    (logits,) = model.calls
    assert logits[0, [3, 4]].tolist() == [1.5, -2.0]
    assert (logits[0] == -1e9).sum() == len(logits[0]) - 2


@pytest.mark.parametrize("stray", [0, 1, 2])
def test_a_wrong_page_gives_no_token(script: Any, make_bench: Any, stray: int) -> None:
    bench = make_bench(script([5]), page_size=2)
    bench.step([(0, [1, 2, 3, 4, 5], True), (1, [1, 9, 3, 4, 5], True)], admits={0: GREEDY, 1: GREEDY})
    pages = list(bench.pages[0])
    admit = m.Admit(2, 5, np.array(pages, np.int32).tobytes(), GREEDY)
    pages[stray] = bench.pages[1][stray]
    wrong = m.Admit(3, 5, np.array(pages, np.int32).tobytes(), GREEDY)
    plan = m.Plan(step=2, admits=[admit, wrong], decodes=np.array([2], np.int32).tobytes())
    bench.runner.launch(plan)
    assert np.frombuffer(bench.result().tokens, np.int32).tolist() == [5]
    bench.runner.launch(m.Plan(step=3, decodes=np.array([3], np.int32).tobytes()))
    assert np.frombuffer(bench.result().tokens, np.int32).tolist() == [-1]


def test_a_directory_without_weights_is_ready_to_be_served(tmp_path: Path) -> None:
    path = make_model(tmp_path / "model", [[1]])
    assert layout.has_model(path)
    assert prepare(str(path), tmp_path / "cache", lambda line: None) == path


@pytest.mark.parametrize(
    ("scripts", "message"),
    [
        ([], "at least one script"),
        ([[]], "each of them a step"),
        ([[{"prompt": 3}]], "each of them a step"),
        ([["x"]], "cannot read"),
        ([[264]], "not among the 264"),
    ],
)
def test_a_bad_script_is_named(
    tmp_path: Path, load_model: Callable[..., Model], scripts: Any, message: str
) -> None:
    make_model(tmp_path, [[1]])
    (tmp_path / "scripts.json").write_text(json.dumps(scripts))
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)


def test_digests_tell_any_two_sequences_apart(script: Any) -> None:
    model = script([1])
    ids = torch.randint(256, (500, 20))
    digests = {tuple(model._digests(row).tolist()) for row in ids}
    assert len(digests) == 500


def test_its_pool_is_not_rounded(tmp_path: Path, load_model: Any) -> None:
    with pytest.raises(ModelError, match="leave out --kv-cache-dtype"):
        load_model(make_model(tmp_path, [[7]]), kv_dtype=torch.float8_e4m3fn)
