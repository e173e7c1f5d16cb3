"""Controls and log-probabilities through the runner: one step ahead, in any company, after a replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted import make_model

from stretto.kernels.sample.reference import sample_row
from stretto.roles import messages as m

UNSET = m.Controls()
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5], [3, 1, 4, 1, 5, 9, 2]]


def int32(values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


def float32(values: Any) -> bytes:
    return np.array(values, np.float32).tobytes()


CONTROLS = {
    "presence": m.Controls(presence_penalty=1.5),
    "frequency": m.Controls(frequency_penalty=0.7),
    "repetition": m.Controls(repetition_penalty=1.3),
    "bias": m.Controls(bias_ids=int32([7, 8, 9]), bias_values=float32([9.0, 9.0, -30.0])),
    "allowed": m.Controls(allowed_ids=int32(range(20, 60)), bias_ids=int32([30]), bias_values=float32([4])),
    "all": m.Controls(
        presence_penalty=0.3,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        bias_ids=int32([3]),
        bias_values=float32([2]),
        allowed_ids=int32(range(0, 250, 2)),
        bad_words=(int32([8]), int32([10, 12]), int32([12, 10, 14])),
        min_tokens=5,
        min_tokens_ids=int32([20, 22]),
    ),
}


def run_ahead(bench: Any, prompts: Sequence[Sequence[int]], wanted: Sequence[m.Sampling], count: int) -> Any:
    """Tokens and results, every step launched before the result of the one before it is read."""
    slots = range(len(prompts))
    chunks = [(slot, prompts[slot], True) for slot in slots]
    histories = {slot: (len(prompts[slot]), prompts[slot]) for slot in slots}
    first = {"chunks": chunks, "admits": dict(enumerate(wanted)), "histories": histories}
    results = bench.run_ahead([first, *[{"decodes": slots}] * (count - 1)])
    tokens = np.array([np.frombuffer(result.tokens, np.int32) for result in results]).T.tolist()
    return tokens, results


def expected_tokens(model_logits: Any, prompt: Sequence[int], sampling: m.Sampling, count: int) -> list[int]:
    """By definition: penalties over explicit histories, then the reference's sampling."""
    controls, output = sampling.controls or UNSET, []
    for _ in range(count):
        logits = model_logits([*prompt, *output]).clone()
        ids = np.frombuffer(controls.allowed_ids, np.int32).tolist()
        if ids:
            kept = logits[ids].clone()
            logits[:] = -torch.inf
            logits[ids] = kept
        logits[np.frombuffer(controls.bias_ids, np.int32).tolist()] += torch.from_numpy(
            np.frombuffer(controls.bias_values, np.float32).copy()
        )
        for data in controls.bad_words:
            word = np.frombuffer(data, np.int32).tolist()
            if len(word) <= len(output) + 1 and output[len(output) + 1 - len(word) :] == word[:-1]:
                logits[word[-1]] = -torch.inf
        if len(output) < controls.min_tokens:
            logits[np.frombuffer(controls.min_tokens_ids, np.int32).tolist()] = -torch.inf
        for token in {*prompt, *output}:
            strength = torch.tensor(controls.repetition_penalty)
            logits[token] = logits[token] / strength if logits[token] > 0 else logits[token] * strength
        for token in set(output):
            logits[token] -= torch.tensor(controls.frequency_penalty) * output.count(token)
            logits[token] -= torch.tensor(controls.presence_penalty)
        parameters = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        output.append(sample_row(logits, *parameters, sampling.seed, len(prompt) + len(output)))
    return output


@pytest.fixture
def logits_of(tiny: Any, make_bench: Any, recorder: Any) -> Any:
    """The tiny model's logits after a sequence."""

    def logits(ids: Sequence[int]) -> torch.Tensor:
        model = recorder(tiny)
        make_bench(model, slots=1).step([(0, ids, True)], admits={0: m.Sampling()})
        return model.calls[0][0]

    return logits


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_controls_see_the_newest_token_one_step_ahead(
    tiny: Any, make_bench: Any, logits_of: Any, name: str, temperature: float
) -> None:
    sampling = m.Sampling(temperature=temperature, seed=5, controls=CONTROLS[name])
    plain = m.Sampling(temperature=temperature, seed=5)
    tokens, _ = run_ahead(make_bench(tiny), PROMPTS[:2], [sampling, plain], 12)
    assert tokens[0] == expected_tokens(logits_of, PROMPTS[0], sampling, 12)
    assert tokens[1] == expected_tokens(logits_of, PROMPTS[1], plain, 12)
    assert tokens[0] != expected_tokens(logits_of, PROMPTS[0], plain, 12)


def test_controlled_tokens_do_not_depend_on_the_batch(tiny: Any, make_bench: Any) -> None:
    kinds = list(CONTROLS.values())
    wanted = [m.Sampling(temperature=1.1, seed=7 + i, controls=kinds[i + 2]) for i in range(4)]
    together, _ = run_ahead(make_bench(tiny), PROMPTS, wanted, 16)
    for prompt, sampling, tokens in zip(PROMPTS, wanted, together, strict=True):
        assert run_ahead(make_bench(tiny, page_size=1), [prompt], [sampling], 16)[0] == [tokens]


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("length", [1, 7])
def test_a_replay_goes_on_as_before(tiny: Any, make_bench: Any, name: str, length: int) -> None:
    sampling = m.Sampling(temperature=1.2, seed=5, controls=CONTROLS[name])
    (tokens,), _ = run_ahead(make_bench(tiny), PROMPTS[:1], [sampling], 14)
    bench = make_bench(tiny)
    bench.generate([[8, 8, 8]], 5, controls=CONTROLS["all"], temperature=1.0)
    known = [*PROMPTS[0], *tokens[:length]]
    histories = {0: (len(PROMPTS[0]), known)}
    replayed = bench.step([(0, known, True)], admits={0: sampling}, histories=histories)
    while len(replayed) < 14 - length:
        replayed += bench.step(decodes=[0])
    assert replayed == tokens[length:]


def test_a_prefix_hit_changes_no_token(tiny: Any, make_bench: Any) -> None:
    prompt = list(range(40, 60))
    sampling = m.Sampling(temperature=1.2, seed=5, controls=CONTROLS["all"], logprobs=3)
    _, alone = run_ahead(make_bench(tiny, page_size=4), [prompt], [sampling], 10)
    bench = make_bench(tiny, page_size=4)
    bench.step([(1, prompt[:16], True)], admits={1: m.Sampling()})
    admit = m.Admit(0, 16, int32(bench.pages[1]), sampling, len(prompt), int32(prompt))
    bench.lengths[0], bench.pages[0] = 16, list(bench.pages[1])
    first = bench.plan([(0, prompt[16:], True)])
    bench.runner.launch(m.Plan(first.step, [admit], b"", first.growth, first.chunks, first.chunk_ids))
    results = [bench.result(), *bench.run_ahead([{"decodes": [0]}] * 9)]
    assert [(r.tokens, r.logprobs) for r in results] == [(r.tokens, r.logprobs) for r in alone]


def test_a_slot_forgets_the_controls_of_the_one_before(tiny: Any, make_bench: Any) -> None:
    plain = make_bench(tiny).generate(PROMPTS[:1], 8)
    bench = make_bench(tiny)
    assert bench.generate(PROMPTS[:1], 8, controls=CONTROLS["all"]) != plain
    assert bench.generate(PROMPTS[:1], 8) == plain


def test_nothing_is_allocated_before_a_request_has_controls(tiny: Any, make_bench: Any) -> None:
    bench = make_bench(tiny)
    bench.generate(PROMPTS, 3, controls=UNSET, logprobs=2)
    assert bench.runner._controls._state is None
    bench.generate(PROMPTS, 3, controls=CONTROLS["bias"])
    assert bench.runner._controls._state is not None


def test_min_tokens_holds_against_any_bias(tmp_path: Path, load_model: Any, make_bench: Any) -> None:
    model = load_model(make_model(tmp_path, [[{65: 0.0, 66: -1.0}]]))
    controls = m.Controls(
        bias_ids=int32([65]), bias_values=float32([100]), min_tokens=3, min_tokens_ids=int32([65])
    )
    assert make_bench(model).generate([[1, 2]], 5, controls=controls) == [[66, 66, 66, 65, 65]]


def test_all_tokens_banned_fails_the_row_alone(tiny: Any, make_bench: Any) -> None:
    banned = m.Controls(allowed_ids=int32([4]), bad_words=(int32([4]),))
    wanted = [m.Sampling(controls=banned, logprobs=1), m.Sampling()]
    tokens, results = run_ahead(make_bench(tiny), PROMPTS[:2], wanted, 3)
    assert tokens[0] == [-1, -1, -1]
    assert tokens[1] == make_bench(tiny).generate(PROMPTS[1:2], 3)[0]
    assert [row.rank for result in results for row in result.logprobs] == [0, 0, 0]
