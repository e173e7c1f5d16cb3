from stretto.kernels import resources

OLD = {80: {"a x: f": [1], "b x: g": [2]}, 90: {"a x: f": [3]}}


def test_the_file_gives_the_table_back(tmp_path):
    path = tmp_path / "resources.json"
    path.write_text(resources.render("3.6.0", OLD))
    assert resources.load(path) == ("3.6.0", OLD)


def test_new_rows_replace_those_of_the_ops_that_were_compiled():
    merged = resources.merge(OLD, {80: {"a y: f": [4]}}, {"a"})
    assert merged == {80: {"b x: g": [2], "a y: f": [4]}, 90: {"a x: f": [3]}}


def test_a_lost_a_new_and_a_changed_row_differ():
    new = {80: {"a x: f": [9], "c x: h": [5]}}
    assert [line.partition(",")[0] for line in resources.differences(OLD, new)] == [
        "8.0 a x: f: the table says [1]",
        "8.0 b x: g: the table says [2]",
        "8.0 c x: h: the table says None",
    ]
