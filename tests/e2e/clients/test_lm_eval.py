"""lm-eval, started as its users start it, on small local tasks: its numbers are those of transformers."""

import json
import os
import subprocess
import sys

import pytest
from e2e.serving import MODEL

DOCS = [
    ("The capital of France is", ["Berlin", "Paris", "Madrid"], 1),
    ("The opposite of hot is", ["cold", "blue", "fast"], 0),
    ("Two plus two equals", ["seven", "ten", "four"], 2),
    ("The sun rises in the", ["east", "kitchen", "ocean floor"], 0),
    ("Cats are a kind of", ["metal", "animal", "weather"], 1),
    ("Water is made of hydrogen and", ["iron", "oxygen", "a very long wrong answer"], 1),
    ("東京 is a city in", ["Japan", "日本", "🙂"], 0),
    ("A week has", ["seven days", "nine days", "eleven days"], 0),
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {docs}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
CHOICES = """
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
WRITING = """
output_type: generate_until
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A directory with the two tasks and their documents."""
    path = tmp_path_factory.mktemp("lm_eval")
    lines = [json.dumps({"question": q, "choices": c, "answer": a}) for q, c, a in DOCS]
    (path / "docs.jsonl").write_text("\n".join(lines))
    for name, kind in (("choosing", CHOICES), ("writing", WRITING)):
        (path / f"{name}.yaml").write_text(TASK.format(name=name, docs=path / "docs.jsonl") + kind)
    return path


@pytest.fixture(scope="module")
def outcome(server, oracle, home):
    """What lm-eval found: its results, and the samples by task and document."""
    settings = f"model={MODEL},base_url={server.url}/v1/completions,tokenizer={oracle.dir},"
    settings += "tokenizer_backend=huggingface,num_concurrent=4,max_retries=1"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home / "hub")}
    subprocess.run(
        [
            sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", settings,
            "--batch_size", "3", "--tasks", "choosing,writing", "--include_path", str(home),
            "--output_path", str(home / "out"), "--log_samples",
        ],
        env=os.environ | offline, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (results,) = home.glob("out/**/results_*.json")
    samples = {
        name: sorted(map(json.loads, next(home.glob(f"out/**/samples_{name}_*")).open()), key=_doc_id)
        for name in ("choosing", "writing")
    }
    return json.loads(results.read_text())["results"], samples


def _doc_id(sample):
    return sample["doc_id"]


@pytest.fixture(scope="module")
def exact(oracle):
    """For each document and choice: the sum of its log-probabilities, and whether each is the likeliest."""
    return [[loglikelihood(oracle, question, choice) for choice in choices] for question, choices, _ in DOCS]


def loglikelihood(oracle, question, choice):
    context, whole = oracle.ids(question), oracle.ids(f"{question} {choice}")
    rows, wanted = oracle.logprobs(whole)[len(context) - 1 : -1], whole[len(context) :]
    return sum(rows[i, token].item() for i, token in enumerate(wanted)), rows.argmax(-1).tolist() == wanted


def test_every_loglikelihood_is_transformers(outcome, exact):
    _, samples = outcome
    for choices, sample in zip(exact, samples["choosing"], strict=True):
        for (likelihood, greedy), ((reported, reported_greedy),) in zip(
            choices, sample["resps"], strict=True
        ):
            assert float(reported) == pytest.approx(likelihood, abs=1e-3)
            assert reported_greedy == str(greedy)


def test_the_accuracy_is_transformers(outcome, exact):
    results, _ = outcome
    right = [choices.index(max(choices)) == answer for choices, (*_, answer) in zip(exact, DOCS, strict=True)]
    assert results["choosing"]["acc,none"] == sum(right) / len(right)


def test_what_it_lets_the_model_write_is_transformers(outcome, oracle):
    _, samples = outcome
    for (question, _, _), sample in zip(DOCS, samples["writing"], strict=True):
        assert sample["resps"][0][0] == oracle.written(oracle.ids(question), 6).split("\n")[0]
