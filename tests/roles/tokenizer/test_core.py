import json
from array import array

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from stretto.roles.messages import Output, Request, Sampling, SamplingParams, Submit
from stretto.roles.tokenizer.chat import load_template
from stretto.roles.tokenizer.core import CONTEXT_IDS, Core
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.vocabulary import Vocabulary, load_vocabulary


def ids(*values):
    return array("i", values).tobytes()


@pytest.fixture
def core(small_dir):
    return Core(load_vocabulary(small_dir), load_template(small_dir), draw_seed=lambda: 42)


def submit(prompt=None, params=None, **fields):
    return Submit(uid=7, gateway=1, arrived=2.5, params=params or SamplingParams(), prompt=prompt, **fields)


def refused(core, message):
    with pytest.raises(Refused) as caught:
        core.prepare(message)
    return caught.value.fault


def test_a_request_is_resolved_completely(core):
    params = SamplingParams(
        max_tokens=4, top_k=-1, stop=("x",), stop_token_ids=(9,), include_stop_str_in_output=True,
        skip_special_tokens=False,
    )  # fmt: skip
    assert core.prepare(submit("a ab", params, stream=True)) == Request(
        uid=7,
        arrived=2.5,
        prompt_ids=ids(97, 257),
        max_tokens=4,
        stop_ids=(259, 5, 9),
        sampling=Sampling(1.0, 0, 1.0, 0.0, 42),
        output=Output(1, True, ("x",), True, False, ids(97, 257)),
        silent_stop_ids=(259, 5),
    )


def test_chat_turns_go_through_the_template_and_get_no_second_boundary_token(core):
    request = core.prepare(submit(messages=[{"role": "u", "content": " ab"}]))
    assert request.prompt_ids == ids(258, *b"[u]", 257, *b"[assistant]")


def test_text_gets_the_boundary_token_that_chat_turns_have_from_their_template(small_dir):
    config = json.loads((small_dir / "tokenizer_config.json").read_text()) | {"add_bos_token": True}
    (small_dir / "tokenizer_config.json").write_text(json.dumps(config))
    core = Core(load_vocabulary(small_dir), load_template(small_dir))
    assert core.prepare(submit("a")).prompt_ids == ids(258, 97)
    turns = core.prepare(submit(messages=[{"role": "u", "content": "a"}], add_generation_prompt=False))
    assert turns.prompt_ids == ids(258, *b"[u]a")


def test_without_max_tokens_it_stays_open(core):
    assert core.prepare(submit("a")).max_tokens is None


def test_the_detokenizer_gets_the_last_ids_and_the_whole_prompt_only_on_request(core):
    output = core.prepare(submit(list(range(20)))).output
    assert output.context_ids == ids(*range(20 - CONTEXT_IDS, 20))
    assert output.prompt_ids == b""
    assert core.prepare(submit([1, 2], echo_prompt_ids=True)).output.prompt_ids == ids(1, 2)


def test_a_prompt_may_fill_the_context_but_for_one_token(core):
    assert core.prepare(submit([1] * 31)).prompt_ids == ids(*[1] * 31)
    fault = refused(core, submit([1] * 32))
    assert (fault.code, fault.param) == ("context_length_exceeded", "prompt")
    assert "holds 32 tokens, but your prompt has 32 tokens" in fault.message


def test_prompt_and_output_must_fit_together(core):
    core.prepare(submit([1] * 20, SamplingParams(max_tokens=12)))
    fault = refused(core, submit([1] * 20, SamplingParams(max_tokens=13)))
    assert "33 tokens: 20 in the prompt and 13 in the output" in fault.message


def test_a_text_far_too_long_is_refused_without_encoding_it(core, monkeypatch):
    monkeypatch.delattr(core._vocabulary, "_encoder")
    fault = refused(core, submit("x" * 128))
    assert "at least 32 tokens" in fault.message
    assert refused(core, submit(messages=[{"role": "u", "content": "x" * 128}])).param == "messages"


def test_the_longest_text_that_fits_is_not_refused_by_its_length(core):
    assert len(core.prepare(submit("</s>" * 31)).prompt_ids) == 4 * 31


@pytest.mark.parametrize("token", [-1, 264, 2**40])
def test_token_ids_outside_the_vocabulary_are_refused(core, token):
    fault = refused(core, submit([1, token]))
    assert fault.param == "prompt"
    assert f"token id {token}, but ids run from 0 to 263" in fault.message


@pytest.mark.parametrize("prompt", ["", [], None])
def test_an_empty_prompt_is_refused(core, prompt):
    assert refused(core, submit(prompt)).message == "The prompt has no tokens."


def test_lone_surrogates_are_refused_wherever_they_come(core):
    bad = "a\ud800"
    assert refused(core, submit(bad)).param == "prompt"
    assert refused(core, submit(messages=[{"role": "u", "content": bad}])).param == "messages"
    assert refused(core, submit("a", SamplingParams(stop=(bad,)))).param == "stop"


def test_a_request_after_a_refused_one_is_served(core):
    refused(core, submit(""))
    assert core.prepare(submit("a")).prompt_ids == ids(97)


def test_every_request_without_a_seed_gets_its_own(small_dir):
    core = Core(load_vocabulary(small_dir), load_template(small_dir))
    seeds = {core.prepare(submit("a")).sampling.seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_a_text_that_the_vocabulary_lacks_is_refused(small_dir):
    encoder = Tokenizer(models.WordLevel({"a": 0}, unk_token="?"))
    core = Core(Vocabulary(encoder, 1, 32, ()), load_template(small_dir))
    assert core.prepare(submit("a")).prompt_ids == ids(0)
    assert "cannot encode this text" in refused(core, submit("b")).message


def test_the_embedded_model_is_tokenized_as_transformers_does(model_dir):
    reference = PreTrainedTokenizerFast.from_pretrained(model_dir)
    core = Core(load_vocabulary(model_dir), load_template(model_dir))
    for text in (
        "Hello, world!",
        " 3.14159 <|im_end|>\n\n",
        "日本語 😀 ﷽ e\u0301",
        "def f(x):\n    return x\n",
    ):
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        plain = core.prepare(submit(text)).prompt_ids
        chat = core.prepare(submit(messages=turns)).prompt_ids
        assert plain == ids(*reference(text)["input_ids"])
        assert chat == ids(*reference.apply_chat_template(turns, add_generation_prompt=True)["input_ids"])
