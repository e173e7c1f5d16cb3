"""`LLM` on the real role graph: the same tokens as the server's, order kept, nothing left behind."""

import psutil
import pytest
from e2e.prompts import PROMPTS

from stretto import LLM, SamplingParams
from stretto.roles.client import StrettoError

GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(scope="module")
def llm(model_dir):
    with LLM(max_seqs=8, max_model_len=1024, quiet=True) as llm:
        yield llm


def test_a_batch_comes_back_in_order_with_the_servers_tokens(llm, server):
    outputs = llm.generate(PROMPTS[:6], GREEDY, use_tqdm=False)
    assert [output.prompt for output in outputs] == PROMPTS[:6]
    for prompt, output in zip(PROMPTS, outputs, strict=False):
        choice = server.complete(prompt, max_tokens=12)["choices"][0]
        assert list(output.outputs[0].token_ids) == choice["token_ids"]
        assert output.outputs[0].text == choice["text"]


def test_a_conversation_is_answered(llm):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    outputs = llm.chat(question, SamplingParams(temperature=0, max_tokens=32), use_tqdm=False)
    assert outputs[0].outputs[0].text == "The capital of France is Paris."


def test_a_prompt_that_does_not_fit_is_named_and_the_next_batch_works(llm):
    with pytest.raises(StrettoError, match=r"prompt 1: .*2000.*1024|prompt 1: .*1024.*2000"):
        llm.generate(["short", [5] * 2000], GREEDY, use_tqdm=False)
    assert len(llm.generate("Once upon a time", GREEDY, use_tqdm=False)) == 1


def test_closing_leaves_no_process():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with LLM(max_model_len=256, quiet=True) as llm:
        llm.generate("Once", SamplingParams(max_tokens=1), use_tqdm=False)
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    assert after <= before
