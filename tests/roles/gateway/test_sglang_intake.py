"""SGLang's fields become jobs, one per prompt."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.sglang_bodies import GenerateBody
from stretto.roles.gateway.sglang_intake import Wanted, wanted
from stretto.roles.messages import SamplingParams

reader = Reader(GenerateBody)


def read(**body: Any) -> list[Wanted]:
    return wanted(reader.read(orjson.dumps(body)))


def params(**sampling: Any) -> SamplingParams:
    return read(text="Hi", sampling_params=sampling)[0].job.params


def test_the_defaults_are_sglangs() -> None:
    (one,) = read(text="Hi")
    assert one == Wanted(Job(params=SamplingParams(max_tokens=128), prompts=("Hi",)), None, None, False)
    assert params(max_new_tokens=None).max_tokens is None


def test_every_sampling_field_arrives_under_our_name() -> None:
    assert params(
        max_new_tokens=7,
        min_new_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=-0.2,
        repetition_penalty=1.1,
        logit_bias={"5": -1.5},
        sampling_seed=3,
        n=2,
        stop=["a", "b"],
        stop_token_ids=[4],
        ignore_eos=True,
        skip_special_tokens=False,
        no_stop_trim=True,
    ) == SamplingParams(
        max_tokens=7,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=-0.2,
        repetition_penalty=1.1,
        logit_bias={5: -1.5},
        seed=3,
        n=2,
        stop=("a", "b"),
        stop_token_ids=(4,),
        ignore_eos=True,
        skip_special_tokens=False,
        include_stop_str_in_output=True,
    )
    assert params(stop="a").stop == ("a",)


def test_null_means_the_default_everywhere() -> None:
    fields = [field for field in GenerateBody.__struct_fields__ if field != "text"]
    assert read(text="Hi", **dict.fromkeys(fields)) == read(text="Hi")


def test_log_probabilities_of_the_output_alone_or_of_the_prompt_too() -> None:
    (output,) = read(text="Hi", return_logprob=True, top_logprobs_num=2, return_text_in_logprobs=True)
    assert (output.job.params.logprobs, output.job.params.prompt_logprobs) == (2, None)
    assert (output.start, output.top, output.with_text) == (None, 2, True)
    (both,) = read(text="Hi", return_logprob=True, logprob_start_len=0)
    assert (both.job.params.logprobs, both.job.params.prompt_logprobs) == (0, 0)
    assert (both.start, both.top, both.job.return_token_ids) == (0, 0, True)
    assert read(text="Hi", logprob_start_len=0, top_logprobs_num=2) == read(text="Hi")


def test_each_prompt_may_have_values_of_its_own() -> None:
    first, second = read(
        input_ids=[[1], [2, 3]],
        sampling_params=[{"n": 1}, {"n": 3}],
        return_logprob=[False, True],
        top_logprobs_num=[1, 2],
        logprob_start_len=[0, 1],
        rid=["a", "b"],
        priority=5,
        stream=True,
    )
    assert (first.job.prompts, first.job.request_id, first.top, first.start) == (([1],), "a", None, None)
    assert (second.job.prompts, second.job.request_id, second.top, second.start) == (([2, 3],), "b", 2, 1)
    assert (first.job.params.n, second.job.params.n, second.job.priority) == (1, 3, 5)
    assert first.job.stream


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": []}, "text"),
        ({"text": 3}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "input_ids[0]"),
        ({"input_ids": [1, [2]]}, "input_ids"),
        ({"input_ids": [[1], 2]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids[0]"),
        ({"text": "a", "rid": ["a"]}, "rid"),
        ({"text": ["a", "b"], "rid": ["a"]}, "rid"),
        ({"text": ["a", "b"], "sampling_params": [{}]}, "sampling_params"),
        ({"text": "a", "return_logprob": [True]}, "return_logprob"),
        ({"text": "a", "top_logprobs_num": 21}, "top_logprobs_num"),
        ({"text": "a", "image_data": "x"}, "image_data"),
        ({"text": "a", "lora_path": "x"}, "lora_path"),
        ({"text": "a", "temperature": 0}, "temperature"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"text": "a", "sampling_params": {"regex": "a"}}, "sampling_params.regex"),
        ({"text": ["a"], "sampling_params": [{"regex": "a"}]}, "sampling_params[0].regex"),
        ({"text": "a", "sampling_params": {"max_tokens": 1}}, "sampling_params.max_tokens"),
        ({"text": "a", "sampling_params": {"min_new_tokens": 3, "max_new_tokens": 2}}, "min_tokens"),
        ({"text": ["a"] * 100, "sampling_params": {"n": 64}}, "prompt"),
    ],
)
def test_a_wrong_field_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read(**body)
    assert (refused.value.fault.status, refused.value.fault.param) == (400, param)
