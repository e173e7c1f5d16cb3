from stretto.roles.detokenizer.pieces import BytePieces, FallbackPieces, bytes_of, special_ids


def test_a_byte_level_token_is_text_where_it_is_whole_characters(byte_level):
    pieces = BytePieces(byte_level, frozenset())
    assert [pieces[token] for token in (0, 97, 256, 257)] == ["\0", "a", " ab", "é😀"]
    assert [pieces[token] for token in (0xC3, 258)] == [b"\xc3", b"\xf0\x9f"]


def test_added_tokens_with_other_characters_stand_for_themselves(byte_level):
    assert BytePieces(byte_level, frozenset())[byte_level.token_to_id("<plain é>")] == "<plain é>"
    assert bytes_of("é") == b"\xe9"
    assert bytes_of("é ") == "é ".encode()


def test_skipped_and_unknown_ids_have_no_text(byte_level, sentencepiece):
    for table in (
        BytePieces(byte_level, special_ids(byte_level)),
        FallbackPieces(sentencepiece, special_ids(sentencepiece), "▁"),
    ):
        assert table[byte_level.get_vocab_size() + 1000] == ""
    assert BytePieces(byte_level, special_ids(byte_level))[byte_level.token_to_id("<s>")] == ""
    assert BytePieces(byte_level, frozenset())[byte_level.token_to_id("<s>")] == "<s>"


def test_only_special_tokens_are_skipped(byte_level):
    assert special_ids(byte_level) == {byte_level.token_to_id(token) for token in ("<s>", "</s>")}


def test_a_sentencepiece_token_is_text_or_a_byte(sentencepiece):
    pieces = FallbackPieces(sentencepiece, frozenset(), "▁")
    found = {
        entry: pieces[sentencepiece.token_to_id(entry)] for entry in ("▁a▁b", "<0xC3>", "<0xZZ>", "<0x4>")
    }
    assert found == {"▁a▁b": " a b", "<0xC3>": 0xC3, "<0xZZ>": "<0xZZ>", "<0x4>": "<0x4>"}


def test_a_table_holds_only_what_was_asked_for(byte_level):
    pieces = BytePieces(byte_level, frozenset())
    assert pieces[97] == pieces[97] == "a"
    assert len(pieces) == 1
