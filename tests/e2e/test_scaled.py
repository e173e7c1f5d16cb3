"""Several processes per role: the same answers, and every process takes part."""

from concurrent.futures import ThreadPoolExecutor

import httpx
from e2e.prompts import PROMPTS


def labelled(server, name):
    """Samples of one metric by its `process` label."""
    samples = {}
    for line in httpx.get(server.url + "/metrics").text.splitlines():
        if line.startswith("stretto_" + name + "{"):
            labels, value = line.rsplit(" ", 1)
            samples[labels.split('process="')[1].split('"')[0]] = float(value)
    return samples


def test_two_of_each_give_the_answers_of_one(start, server):
    wide = start("--gateways", "2", "--tokenizers", "2", "--detokenizers", "2", "--max-seqs", "8")
    assert {"gateway", "gateway 1", "tokenizer", "tokenizer 1", "detokenizer 1"} <= set(wide.family())

    def text(where, prompt):
        return where.complete(prompt, max_tokens=8, stop=["\n\n"])["choices"][0]["text"]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda prompt: text(wide, prompt), PROMPTS))
    prompts = labelled(wide, "prompts_total")
    wide.stop()
    assert answers == [text(server, prompt) for prompt in PROMPTS]
    assert sum(prompts.values()) == len(PROMPTS)
    assert min(prompts.values()) > 0
