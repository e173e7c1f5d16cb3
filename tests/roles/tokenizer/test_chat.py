import json

import pytest
from transformers import PreTrainedTokenizerFast

from stretto.roles.tokenizer.chat import ChatTemplate, load_template
from stretto.roles.tokenizer.refusal import Refused

TURNS = [
    {"role": "system", "content": 'Be <brief> & "kind".'},
    {"role": "user", "content": "é 😀\n"},
    {"role": "assistant", "content": "Yes.", "name": None},
    {"role": "user", "content": "Why?"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
        "{% endif %}"
    ),
    "blocks": "{{ bos_token }}\n  {% for m in messages %}\n  {{ m.role }}: {{ m.content }}\n  {% endfor %}\n",
    "json": "{% for m in messages %}{{ m | tojson }}{{ m | tojson(indent=2) }}{% endfor %}",
    "loops": (
        "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
        "{% if loop.last %}{% break %}{% endif %}{{ m.content }}{{ eos_token }}{% endfor %}"
    ),
    "generation": (
        "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}"
        "{% endgeneration %}{{ x }}{% endfor %}"
    ),
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}{{ strftime_now('%Y') }}"
    ),
    "absent": (
        "{{ tools is none }}{{ documents is none }}{{ pad_token is defined }}"
        "{% for m in messages %}{{ 'name' in m }}{% endfor %}"
    ),
    "extra": "{{ thinking }}{{ bos_token }}",
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("generate", [True, False])
def test_renderings_are_those_of_transformers(small_dir, name, generate):
    extra = {"thinking": True}
    reference = PreTrainedTokenizerFast(tokenizer_file=str(small_dir / "tokenizer.json"), **TOKENS)
    expected = reference.apply_chat_template(
        TURNS, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=generate, **extra
    )
    assert ChatTemplate(TEMPLATES[name], TOKENS).render(TURNS, generate, extra) == expected


def test_extra_values_override_special_tokens_but_not_the_turns():
    template = ChatTemplate("{{ bos_token }}{{ messages | length }}{{ add_generation_prompt }}", TOKENS)
    extra = {"bos_token": "!", "messages": [], "add_generation_prompt": 7}
    assert template.render(TURNS, False, extra) == "!4False"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content }}", "has no element 9"),
        ("{{ 'a' + 1 }}", "can only concatenate str"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ messages | tojson(indent=10 ** 9) }}", "it indents by 1000000000"),
        ("{{ messages[0].content * (10 ** 9) }}", "it makes more than"),
    ],
)
def test_a_template_that_fails_refuses_the_request(source, why):
    with pytest.raises(Refused, match=why) as refused:
        ChatTemplate(source, {}).render(TURNS, True, {})
    assert refused.value.fault.status == 400
    assert refused.value.fault.param == "messages"


@pytest.mark.parametrize(("source", "why"), [(None, "no chat template"), ("{% for %}", "is broken")])
def test_a_model_without_a_usable_template_says_so(source, why):
    with pytest.raises(Refused, match=why):
        ChatTemplate(source, {}).render(TURNS, True, {})


def test_the_template_comes_from_the_config_or_its_default_entry_or_the_file(small_dir):
    path = small_dir / "tokenizer_config.json"
    config = json.loads(path.read_text())
    assert load_template(small_dir).render([{"role": "u", "content": "x"}], True, {}) == "<s>[u]x[assistant]"
    config["chat_template"] = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "named {{ eos_token }}"},
    ]
    path.write_text(json.dumps(config))
    assert load_template(small_dir).render([], True, {}) == "named </s>"
    (small_dir / "chat_template.jinja").write_text("filé", encoding="utf-8")
    assert load_template(small_dir).render([], True, {}) == "filé"


CHATML = TEMPLATES["chatml"]
TRIMMED = CHATML.replace("message['content']", "(message['content'] | trim)")
FINALS = ["Yes, be", "Yes, be ", " \n Yes", "", "<|im_end|>\n"]


@pytest.mark.parametrize("template", [CHATML, TRIMMED, "{{ messages[-1].content }}</s>"])
@pytest.mark.parametrize("final", FINALS)
def test_a_final_message_is_left_open_as_transformers_does(small_dir, template, final):
    turns = [*TURNS, {"role": "assistant", "content": final}]
    reference = PreTrainedTokenizerFast(tokenizer_file=str(small_dir / "tokenizer.json"), **TOKENS)
    expected = reference.apply_chat_template(
        turns, chat_template=template, tokenize=False, continue_final_message=True
    )
    assert ChatTemplate(template, TOKENS).render(turns, False, {}, True) == expected
    assert turns[-1]["content"] == final


def test_the_embedded_models_final_message_is_left_open(model_dir):
    turns = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "The colour "}]
    text = load_template(model_dir).render(turns, False, {}, True)
    assert text.endswith("<|im_start|>assistant\nThe colour ")


@pytest.mark.parametrize(
    ("template", "turns", "generate", "why"),
    [
        (CHATML, TURNS, True, "set one of them to false"),
        (CHATML, [], False, "no final message"),
        (CHATML, [{"role": "assistant", "content": None}], False, "no final message"),
        ("{{ messages | length }}", TURNS, False, "changes the final message"),
        ("{{ messages[-1].content | upper }}", TURNS, False, "changes the final message"),
    ],
)
def test_a_final_message_that_cannot_be_continued_is_refused(template, turns, generate, why):
    with pytest.raises(Refused, match=why) as refused:
        ChatTemplate(template, TOKENS).render(turns, generate, {}, True)
    assert refused.value.fault.param == "continue_final_message"
