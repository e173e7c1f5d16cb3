import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.roles.detokenizer.stops import StopStrings


def run(stops, chunks, include=False):
    """(pieces shown, stop found): the pieces up to the stop, or all and the rest."""
    watch, shown = StopStrings(stops, include), []
    for chunk in chunks:
        text, stop = watch.push(chunk)
        shown.append(text)
        if stop is not None:
            return shown, stop
    return [*shown, watch.finish()], None


@pytest.mark.parametrize(
    ("stops", "chunks", "shown", "stop"),
    [
        (("STOP",), ["a STOP b"], ["a "], "STOP"),
        (("STOP",), ["a S", "TO", "P b"], ["a ", "", ""], "STOP"),
        (("STOP",), ["a S", "TO", "x"], ["a ", "", "STOx", ""], None),
        (("STOP",), ["a STO"], ["a ", "STO"], None),
        (("\n\n",), ["a\n", "b\n", "\nc"], ["a", "\nb", ""], "\n\n"),
        (("aab",), ["aa", "ab"], ["", "a"], "aab"),
        (("é😀",), ["é", "😀"], ["", ""], "é😀"),
        (("a", "b"), ["xbya"], ["x"], "b"),
        (("ab", "abc"), ["xabcd"], ["x"], "abc"),
        (("ab", "abc"), ["xab", "cd"], ["x"], "ab"),
        (("bc", "abcd"), ["abcd"], [""], "abcd"),
        (("xyz", "zq"), ["xy", "zz", "q"], ["", "xyz"[:0]], "xyz"),
        (("abc",), ["", "ab", "", "c"], ["", "", "", ""], "abc"),
    ],
)
def test_the_text_is_cut_before_the_stop_string(stops, chunks, shown, stop):
    assert run(stops, chunks) == (shown, stop)


def test_the_stop_string_is_shown_where_asked_for_but_nothing_after_it():
    assert run(("STOP",), ["a S", "TOP b"], include=True) == (["a ", "STOP"], "STOP")


def test_what_was_skipped_completes_no_stop_string_but_may_begin_one():
    watch = StopStrings(("STOP",), False)
    assert [watch.skip("STOP"), watch.skip(" ST")] == ["STOP", " "]
    assert watch.push("O") == ("", None)
    assert watch.push("P.") == ("", "STOP")


def test_a_stop_string_inside_text_that_was_skipped_and_held_is_past():
    watch = StopStrings(("abcd", "bc"), False)
    assert watch.skip("abc") == ""
    assert watch.push("x") == ("abcx", None)
    assert watch.push("bc") == ("", "bc")


def test_held_back_text_is_given_once():
    watch = StopStrings(("STOP",), False)
    watch.push("ST")
    assert (watch.finish(), watch.finish()) == ("ST", "")


letters = st.text("ab", min_size=1, max_size=4)


@given(
    st.lists(letters, min_size=1, max_size=3).map(tuple), st.lists(st.text("abc", max_size=4), max_size=12)
)
def test_against_searching_the_whole_text_after_every_chunk(stops, chunks):
    shown, stop = run(stops, chunks)
    text = ""
    for chunk in chunks:
        text += chunk
        found = [(text.find(s), -len(s), s) for s in stops if s in text]
        if found:
            at, _, expected = min(found)
            assert ("".join(shown), stop) == (text[:at], expected)
            return
    assert ("".join(shown), stop) == (text, None)


@given(
    st.lists(letters, min_size=1, max_size=3).map(tuple), st.lists(st.text("abc", max_size=4), max_size=12)
)
def test_no_more_is_held_back_than_may_begin_a_stop_string(stops, chunks):
    watch, text, shown = StopStrings(stops, False), "", ""
    for chunk in chunks:
        piece, stop = watch.push(chunk)
        text, shown = text + chunk, shown + piece
        if stop is not None:
            return
        held = text[len(shown) :]
        assert not held or any(s.startswith(held) for s in stops)


@given(
    st.lists(letters, min_size=1, max_size=3).map(tuple),
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.integers(0, 12),
)
def test_against_searching_the_whole_text_for_what_ends_after_the_skipped(stops, chunks, skipped):
    watch, text, shown, past = StopStrings(stops, False), "", "", 0
    for i, chunk in enumerate(chunks):
        text += chunk
        if i < skipped:
            shown, past = shown + watch.skip(chunk), len(text)
            continue
        piece, stop = watch.push(chunk)
        shown += piece
        found = [(at, -len(s), s) for s in stops for at in range(len(text)) if _ends_after(text, s, at, past)]
        if found:
            at, _, expected = min(found)
            assert (shown, stop) == (text[:at], expected)
            return
        assert stop is None
    assert shown + watch.finish() == text


def _ends_after(text, stop, at, past):
    return text.startswith(stop, at) and at + len(stop) > past
