from stretto.bench.answer import Answer, Usage


def test_a_piece_without_text_or_tokens_does_not_count() -> None:
    answer = Answer()
    answer.hear(1.0, "", [])
    answer.hear(2.0, None, None)
    assert answer.pieces == []


def test_a_token_without_text_counts_when_it_comes() -> None:
    answer = Answer()
    answer.hear(1.0, "", [7])
    answer.hear(2.0, "half", [8, 9])
    assert (answer.pieces, answer.token_ids, answer.tokens) == ([1.0, 2.0], [7, 8, 9], 3)


def test_the_servers_own_count_goes_first() -> None:
    assert Answer(token_ids=[1, 2], usage=Usage(5, 3)).tokens == 3
    assert Answer(usage=Usage(5, 3)).prompt_tokens == 5


def test_without_ids_and_counts_pieces_are_all_there_is() -> None:
    answer = Answer(pieces=[1.0, 2.0])
    assert (answer.tokens, answer.prompt_tokens) == (2, 0)
