import pytest

from stretto.roles.messages import Fault
from stretto.roles.tokenizer.refusal import Refused, check_text, context_exceeded


def test_a_refusal_is_a_400_in_the_terms_of_the_api():
    assert Refused("no", "prompt", "why").fault == Fault(
        400, "no", type="invalid_request_error", param="prompt", code="why"
    )


def test_a_lone_surrogate_is_not_text():
    check_text("é😀", "stop")
    with pytest.raises(Refused, match="lone surrogate") as refused:
        check_text("\ude00", "stop")
    assert refused.value.fault.param == "stop"


def test_a_prompt_beyond_the_context_names_both_numbers():
    fault = context_exceeded(32, 40, None, "prompt").fault
    assert fault.code == "context_length_exceeded"
    assert fault.message == (
        "This model's context holds 32 tokens, but your prompt has 40 tokens and needs room for at least one "
        "more. Shorten the prompt."
    )


def test_a_prompt_and_output_beyond_the_context_name_all_numbers():
    assert context_exceeded(32, 20, 13, "prompt").fault.message == (
        "This model's context holds 32 tokens, but you asked for 33 tokens: 20 in the prompt and 13 in the "
        "output. Shorten the prompt or lower max_tokens."
    )


def test_a_bound_says_at_least():
    assert "has at least 40 tokens" in context_exceeded(32, 40, 5, "messages", floor=True).fault.message
