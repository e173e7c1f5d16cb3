"""Templates that loop or blow up are refused, on any thread; those that do neither never notice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stretto.roles.tokenizer import budget
from stretto.roles.tokenizer.budget import Exceeded
from stretto.roles.tokenizer.chat import ChatTemplate
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.sandbox import Sandbox, render


def rendered(source: str, **values: Any) -> str:
    return render(Sandbox().from_string(source), values)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}BODY{% endfor %}{% endfor %}"
ENDLESS = {
    "an empty loop": LOOP.replace("BODY", ""),
    "an inner condition": LOOP.replace("BODY", "{% if i < 0 %}{% endif %}"),
    "a skipped loop": LOOP.replace("range(99999) %}BODY", "range(99999) if j < 0 %}"),
    "a macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "a recursive loop": "{% for i in [99] recursive %}{% if i %}"
    "{{ loop([i - 1] * 2) }}{% endif %}{% endfor %}",
    "blocks": "{% for i in range(99999) %}{% block b scoped %}{% for j in range(9999) %}{% endfor %}"
    "{% endblock %}{% endfor %}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_what_does_not_end_is_refused_after_its_time(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.02)
    with pytest.raises(Refused, match=r"it takes more than 0.02 s"):
        ChatTemplate(source, {}).render([], True, {})


def test_a_thread_beside_the_loop_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.02)
    outcome: list[Exception] = []

    def work() -> None:
        try:
            rendered(ENDLESS["an empty loop"])
        except Exceeded as exceeded:
            outcome.append(exceeded)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(outcome) == 1


DOUBLING = "{% set ns = namespace(a=START) %}{% for i in range(60) %}{% set ns.a = MORE %}{% endfor %}"
HUGE = {
    "output": "{% for i in range(99999) %}{{ text }}{% endfor %}",
    "literal output": "{% for i in range(99999) %}" + "x" * 999 + "{% endfor %}",
    "sums": DOUBLING.replace("START", "'ab'").replace("MORE", "ns.a + ns.a + ns.a"),
    "sums of lists": DOUBLING.replace("START", "[1]").replace("MORE", "ns.a + ns.a"),
    "joints": DOUBLING.replace("START", "'ab'").replace("MORE", "ns.a ~ ns.a"),
    "products": "{{ 'ab' * (10 ** 11) }}",
    "products of lists": "{{ ([1] * (10 ** 11)) | length }}",
    "powers": "{{ 10 ** (10 ** 9) }}",
    "products of numbers": DOUBLING.replace("START", "9").replace("MORE", "ns.a * ns.a"),
    "formats": "{{ '%0100000000000d' % 1 }}",
    "formats with a given width": "{{ '%*d' % (10 ** 11, 1) }}",
    "format": "{{ '{:100000000000}'.format(1) }}",
    "format with a given width": "{{ '{:{}}'.format(1, 10 ** 11) }}",
    "the filter format": "{{ '%0100000000000d' | format(1) }}",
    "padding": "{{ 'a'.ljust(10 ** 11) }}",
    "replacements": "{{ ('a' * 9999999).replace('a', 'a' * 9999999) }}",
    "the filter replace": "{{ ('a' * 999999) | replace('a', text) }}",
    "joins": "{{ text.join(text) }}",
    "joins of repetitions": "{{ ''.join([text] * 99999) }}",
    "the filter join": "{{ ([text] * 99999) | join }}",
    "joins of attributes": "{{ ([{'a': text}] * 99999) | join('', attribute='a') }}",
    "centred": "{{ 'a' | center(10 ** 11) }}",
    "indented": "{{ ('\n' * 999999) | indent(999999) }}",
    "batches": "{{ [1] | batch(10 ** 11, 0) | list }}",
    "mapped": "{{ range(99999) | map('string') | map('center', 99999) | list | length }}",
    "captured": "{% set a %}{% for i in range(99999) %}{{ text }}{% endfor %}{% endset %}",
    "macros": "{% macro f() %}{{ text }}{% endmacro %}{% for i in range(999) %}{% set a = f() %}{% endfor %}",
}


@pytest.mark.parametrize("source", HUGE.values(), ids=HUGE)
def test_what_makes_too_much_is_refused_before_it_is_there(source: str) -> None:
    with pytest.raises(Exceeded, match=r"it (makes|formats)"):
        rendered(source, text="x" * 99_999)


@pytest.mark.parametrize("source", ["{{ 'a'.expandtabs(9) }}", "{{ 'a'.translate({}) }}"])
def test_methods_that_cannot_be_foreseen_are_not_there(source: str) -> None:
    with pytest.raises(Exception, match="unsafe"):
        rendered(source)


MODEST = {
    "{{ 'a' + 'b' + 1 | string + [1, 2] | join('-') }}": "ab11-2",
    "{{ 'a' ~ 1 ~ none ~ missing }}": "a1None",
    "{{ '**%s** %3d' % ('a', 5) }}|{{ '%s' | format([1]) }}": "**a**   5|[1]",
    "{{ '{:>4}: {{{}}}'.format('a', 1) }}": "   a: {1}",
    "{{ 'a' * 3 }}{{ 3 * [1] }}{{ 2 * 3 }}{{ 2 ** 10 }}{{ 7 % 4 }}": "aaa[1, 1, 1]610243",
    "{{ 'a' | center(5) }}|{{ 'a\nb' | indent(2) }}|{{ 'ab cd' | wordwrap(2) }}": "  a  |a\n  b|ab\ncd",
    "{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2] | slice(2) | list }}": "[[1, 2], [3, 0]][[1], [2]]",
    "{{ 'aba' | replace('a', 'c', 1) }}{{ 'aba'.replace('b', '') }}": "cbaaa",
    "{{ '-'.join(['a', 'b']) }}{{ [{'n': 1}, {'n': 2}] | join(',', attribute='n') }}": "a-b1,2",
    "{{ ['a', 'b'] | map('upper') | join }}{{ 'a'.rjust(3, '.') }}": "AB..a",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) + f(2) }}": "<1><2>",
    "{% set a %}{{ 1 }}{% endset %}{% filter upper %}x{{ a }}{% endfilter %}": "X1",
}


@pytest.mark.parametrize("source", MODEST)
def test_what_is_modest_comes_out_as_jinja_has_it(source: str) -> None:
    assert rendered(source) == MODEST[source]


def test_each_rendering_has_a_budget_of_its_own() -> None:
    template, text = Sandbox().from_string("{{ text }}"), "x" * (budget.MAX_SIZE // 3)
    assert [len(render(template, {"text": text})) for _ in range(4)] == [len(text)] * 4
