import json
from array import array

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from stretto.roles.messages import (
    Beams,
    Controls,
    Detokenize,
    Detokenized,
    Output,
    Request,
    Sampling,
    SamplingParams,
    Submit,
    Tokenize,
    Tokenized,
)
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


def only(core, message):
    """The one request that a submit makes."""
    (request,) = core.prepare(message)
    return request


def refused(core, message):
    with pytest.raises(Refused) as caught:
        core.prepare(message)
    return caught.value.fault


def test_a_request_is_resolved_completely(core):
    params = SamplingParams(
        max_tokens=4, top_k=-1, stop=("x",), stop_token_ids=(9,), include_stop_str_in_output=True,
        skip_special_tokens=False, min_tokens=2, logit_bias={3: -1.0}, logprobs=4, prompt_logprobs=0,
    )  # fmt: skip
    controls = Controls(
        bias_ids=ids(3), bias_values=array("f", [-1]).tobytes(), min_tokens=2, min_tokens_ids=ids(259, 5, 9)
    )
    assert only(core, submit("a ab", params, stream=True, priority=-3, deadline=8.5)) == Request(
        uid=7,
        arrived=2.5,
        prompt_ids=ids(97, 257),
        max_tokens=4,
        stop_ids=(259, 5, 9),
        sampling=Sampling(1.0, 0, 1.0, 0.0, 42, controls, 4, 0),
        output=Output(
            1,
            True,
            ("x",),
            True,
            False,
            ids(97, 257),
            ids(97, 257),
            min_tokens=2,
            logprobs=4,
            prompt_logprobs=0,
        ),
        silent_stop_ids=(259, 5),
        priority=-3,
        deadline=8.5,
    )


def test_a_plain_request_has_no_controls(core):
    request = only(core, submit("a"))
    assert (request.sampling.controls, request.beams, request.leader) == (None, None, None)
    assert request.output == Output(1, False, context_ids=ids(97))


def test_ends_that_are_ignored_are_forbidden_all_the_same_before_min_tokens(core):
    params = SamplingParams(ignore_eos=True, stop_token_ids=(9,), min_tokens=1)
    request = only(core, submit("a", params))
    assert (request.stop_ids, request.silent_stop_ids) == ((9,), ())
    assert request.sampling.controls.min_tokens_ids == ids(259, 5, 9)


def test_each_choice_is_a_request_with_the_next_uid_and_a_seed_of_its_own(core):
    first, second, third = core.prepare(submit("a", SamplingParams(n=2, best_of=3, seed=1)))
    assert [(r.uid, r.leader) for r in (first, second, third)] == [(7, None), (8, 7), (9, 7)]
    assert first.sampling.seed == 1
    assert len({r.sampling.seed for r in (first, second, third)}) == 3
    assert (first.sampling.logprobs, first.output.logprobs) == (0, None)


def test_what_is_known_already_is_handed_on_to_each_choice(core):
    submit = Submit(
        8, 0, 0.0, SamplingParams(n=2), "a", generated={9: b"abcd"}, retain=3.0, key=5, cache_salt="s"
    )
    first, second = core.prepare(submit)
    assert (first.generated, second.generated) == (b"", b"abcd")
    assert {(one.output.retain, one.output.key, one.cache_salt) for one in (first, second)} == {(3.0, 5, "s")}


def test_a_beam_search_is_one_request(core):
    params = SamplingParams(n=2, best_of=4, use_beam_search=True, length_penalty=0.5, early_stopping="never")
    request = only(core, submit("a", params))
    assert request.beams == Beams(4, 2, 0.5, "never")
    assert only(core, submit("a", SamplingParams(n=2, use_beam_search=True))).beams == Beams(2, 2)


def test_what_is_echoed_is_the_text_as_it_was_written_or_the_ids(core):
    text = only(core, submit("a ab", echo=True)).output
    assert (text.echo, text.prompt_text, text.prompt_ids) == (True, "a ab", b"")
    given = only(core, submit([97], echo=True)).output
    assert (given.echo, given.prompt_text, given.prompt_ids) == (True, None, ids(97))
    assert only(core, submit("a")).output.prompt_text is None


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (SamplingParams(logprobs=21), "logprobs"),
        (SamplingParams(min_tokens=2, max_tokens=1), "min_tokens"),
        (SamplingParams(stop=("",)), "stop"),
        (SamplingParams(stop_token_ids=(264,)), "stop_token_ids"),
        (SamplingParams(logit_bias={264: 1.0}), "logit_bias"),
        (SamplingParams(allowed_token_ids=()), "allowed_token_ids"),
        (SamplingParams(bad_words=("",)), "bad_words"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(core, params, param):
    assert refused(core, submit("a", params)).param == param


@pytest.mark.parametrize("special", [None, True, False])
def test_boundary_tokens_are_added_as_asked(small_dir, special):
    config = json.loads((small_dir / "tokenizer_config.json").read_text()) | {"add_bos_token": True}
    (small_dir / "tokenizer_config.json").write_text(json.dumps(config))
    core = Core(load_vocabulary(small_dir), load_template(small_dir))
    turns = [{"role": "u", "content": "a"}]
    text = only(core, submit("a", add_special_tokens=special)).prompt_ids
    chat = only(core, submit(messages=turns, add_special_tokens=special)).prompt_ids
    assert text == (ids(97) if special is False else ids(258, 97))
    assert chat[:8] == (ids(258, 258) if special else ids(258, ord("[")))


def test_a_final_message_is_left_open(core):
    turns = [{"role": "u", "content": "a"}, {"role": "assistant", "content": "b"}]
    request = only(core, submit(messages=turns, add_generation_prompt=False, continue_final_message=True))
    assert request.prompt_ids == ids(258, *b"[u]a[assistant]b")


def test_texts_and_turns_become_ids_and_entries_however_long(core):
    assert core.tokenize(Tokenize(3, 1, "a ab")) == Tokenized(3, [97, 257], ["a", "Ġab"], 32)
    turns = [{"role": "u", "content": "a"}]
    chat = core.tokenize(Tokenize(3, 1, messages=turns, add_generation_prompt=False))
    assert chat.token_ids == [258, *b"[u]a"]
    assert len(core.tokenize(Tokenize(3, 1, "x" * 999)).token_ids) == 999
    assert core.tokenize(Tokenize(3, 1, "")).token_ids == []


def test_ids_become_text_special_tokens_included(core):
    assert core.detokenize(Detokenize(3, 1, [258, 97, 257])) == Detokenized(3, "<s>a ab")
    assert core.detokenize(Detokenize(3, 1, [])) == Detokenized(3, "")
    with pytest.raises(Refused, match="tokens has 264") as caught:
        core.detokenize(Detokenize(3, 1, [264]))
    assert caught.value.fault.param == "tokens"


def test_chat_turns_go_through_the_template_and_get_no_second_boundary_token(core):
    request = only(core, submit(messages=[{"role": "u", "content": " ab"}]))
    assert request.prompt_ids == ids(258, *b"[u]", 257, *b"[assistant]")


def test_text_gets_the_boundary_token_that_chat_turns_have_from_their_template(small_dir):
    config = json.loads((small_dir / "tokenizer_config.json").read_text()) | {"add_bos_token": True}
    (small_dir / "tokenizer_config.json").write_text(json.dumps(config))
    core = Core(load_vocabulary(small_dir), load_template(small_dir))
    assert only(core, submit("a")).prompt_ids == ids(258, 97)
    turns = only(core, submit(messages=[{"role": "u", "content": "a"}], add_generation_prompt=False))
    assert turns.prompt_ids == ids(258, *b"[u]a")


def test_without_max_tokens_it_stays_open(core):
    assert only(core, submit("a")).max_tokens is None


def test_the_detokenizer_gets_the_last_ids_and_the_whole_prompt_only_on_request(core):
    output = only(core, submit(list(range(20)))).output
    assert output.context_ids == ids(*range(20 - CONTEXT_IDS, 20))
    assert output.prompt_ids == b""
    assert only(core, submit([1, 2], echo_prompt_ids=True)).output.prompt_ids == ids(1, 2)


def test_a_prompt_may_fill_the_context_but_for_one_token(core):
    assert only(core, submit([1] * 31)).prompt_ids == ids(*[1] * 31)
    fault = refused(core, submit([1] * 32))
    assert (fault.code, fault.param) == ("context_length_exceeded", "prompt")
    assert "holds 32 tokens, but your prompt has 32 tokens" in fault.message


def test_a_prompt_to_be_scored_may_fill_the_context(core):
    scoring = SamplingParams(max_tokens=0)
    assert only(core, submit([1] * 32, scoring)).max_tokens == 0
    assert len(only(core, submit("</s>" * 32, scoring)).prompt_ids) == 4 * 32
    assert (
        "holds 32 tokens, but your prompt has 33 tokens. Shorten"
        in refused(core, submit([1] * 33, scoring)).message
    )


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
    assert len(only(core, submit("</s>" * 31)).prompt_ids) == 4 * 31


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
    assert only(core, submit("a")).prompt_ids == ids(97)


def test_every_request_without_a_seed_gets_its_own(small_dir):
    core = Core(load_vocabulary(small_dir), load_template(small_dir))
    seeds = {only(core, submit("a")).sampling.seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_a_text_that_the_vocabulary_lacks_is_refused(small_dir):
    encoder = Tokenizer(models.WordLevel({"a": 0}, unk_token="?"))
    core = Core(Vocabulary(encoder, 1, 32, ()), load_template(small_dir))
    assert only(core, submit("a")).prompt_ids == ids(0)
    assert "cannot encode this text" in refused(core, submit("b")).message
    assert refused(core, submit("a", SamplingParams(bad_words=("b",)))).param == "bad_words"


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
        plain = only(core, submit(text)).prompt_ids
        chat = only(core, submit(messages=turns)).prompt_ids
        assert plain == ids(*reference(text)["input_ids"])
        assert chat == ids(*reference.apply_chat_template(turns, add_generation_prompt=True)["input_ids"])
