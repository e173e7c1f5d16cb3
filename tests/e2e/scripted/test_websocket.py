"""Every case over one WebSocket at once, whole and streamed, with the rank of each token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import websockets.sync.client as ws
from e2e.scripted.asking import DEFAULTS
from e2e.scripted.cases import CASES, RAW
from e2e.scripted.scripts import Case, logprobs_of
from e2e.scripted.trials import FLOOR, Bench, about

Frame = dict[str, Any]

NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "streamed"])
def frames(roomy: Bench, request: pytest.FixtureRequest) -> dict[str, list[Frame]]:
    """What came for each case, by its name."""
    came: dict[str, list[Frame]] = {name: [] for name in NAMES}
    with ws.connect(roomy.server.url.replace("http", "ws") + "/v1/stream") as socket:
        for case in CASES:
            body = {**DEFAULTS, "prompt": roomy.shelf.prompt(case), "logprobs": 2, **case.fields}
            body["stream"] = request.param
            socket.send(json.dumps({"type": "generate", "id": case.name, "request": body}))
        while not all(said and said[-1]["type"] != "delta" for said in came.values()):
            frame = json.loads(socket.recv())
            came[frame["id"]].append(frame)
    return came


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_all_at_once(roomy: Bench, frames: dict[str, list[Frame]], case: Case) -> None:
    said, done = frames[case.name], frames[case.name][-1]
    prompt = roomy.shelf.prompt(case)
    lead = roomy.text(prompt) if case.fields.get("echo") else ""
    assert "".join(frame.get("text", "") for frame in said) == lead + case.text
    assert joined(said, "token_ids") == list(case.ids)
    assert joined(said, "logprobs") == entries(case, [*prompt, *case.ids], len(prompt))
    if lead:
        assert joined(said, "prompt_logprobs") == [None, *entries(case, prompt, 1)]
    assert done["type"] == "done"
    assert (done["finish_reason"], done["stop_reason"]) == (case.finish, case.stop)
    assert done["prompt_token_ids"] == prompt
    assert done["usage"]["prompt_tokens"] == len(prompt)
    assert done["usage"]["completion_tokens"] == len(case.ids)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_delta_tells_how_many_tokens_came_before_it(frames: dict[str, list[Frame]], case: Case) -> None:
    came = 0
    for frame in frames[case.name][:-1]:
        assert frame["index"] == came
        came += len(frame["token_ids"])


def joined(frames: Sequence[Frame], name: str) -> list[Any]:
    return [item for frame in frames for item in frame.get(name, [])]


def entries(case: Case, sequence: Sequence[int], first: int) -> list[Frame]:
    """What is told of the tokens of a sequence from position `first` on."""
    return [entry(case, sequence, position) for position in range(first, len(sequence))]


def entry(case: Case, sequence: Sequence[int], position: int) -> Frame:
    token, logprobs = sequence[position], logprobs_of(case.step(position - 1), len(RAW))
    best = sorted(range(len(RAW)), key=lambda i: (-logprobs[i], i))[:2]

    def named(token: int) -> Frame:
        text = RAW[token].decode(errors="replace")
        return {
            "id": token,
            "token": text,
            "bytes": list(RAW[token]),
            "logprob": about(max(FLOOR, float(logprobs[token]))),
        }

    rank = 1 + int((logprobs > logprobs[token]).sum())
    return {**named(token), "rank": rank, "top": [named(i) for i in best]}
