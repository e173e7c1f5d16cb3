from stretto.kernels import resources

OLD = {80: {"a x: f": [1, "p"], "b x: g": [2, "q"]}, 90: {"a x: f": [3, "r"]}}


def test_the_file_gives_the_table_back(tmp_path):
    path = tmp_path / "resources.json"
    path.write_text(resources.render("3.6.0", OLD))
    assert resources.load(path) == ("3.6.0", OLD)


def test_new_rows_replace_those_of_the_ops_that_were_compiled():
    merged = resources.merge(OLD, {80: {"a y: f": [4, "s"]}}, {"a"})
    assert merged == {80: {"b x: g": [2, "q"], "a y: f": [4, "s"]}, 90: {"a x: f": [3, "r"]}}


def test_a_lost_a_new_and_a_changed_row_differ():
    new = {80: {"a x: f": [9, "p"], "c x: h": [5, "t"]}}
    assert resources.differences(OLD, new) == [
        "8.0 a x: f: the table says [1, 'p'], it is [9, 'p']",
        "8.0 b x: g: the table says [2, 'q'], it is None",
        "8.0 c x: h: the table says None, it is [5, 't']",
    ]


def test_a_row_of_a_digest_alone_is_compared_by_it():
    assert resources.differences(OLD, {90: {"a x: f": ["r"]}}) == []
    assert resources.differences(OLD, {90: {"a x: f": ["s"]}}) == [
        "9.0 a x: f: the table says [3, 'r'], it is ['s']"
    ]
