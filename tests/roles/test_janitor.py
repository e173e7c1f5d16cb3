"""A janitor removes what it was hired for, once its owner's pipe ends, and nothing before."""

import os
import subprocess

from stretto.roles.janitor import hire_janitor


def test_paths_go_when_the_pipe_ends(tmp_path):
    folder, file, kept = tmp_path / "a folder", tmp_path / "-file", tmp_path / "kept"
    folder.mkdir()
    (folder / "inside").write_text("")
    file.write_text("")
    kept.write_text("")
    janitor = hire_janitor(subprocess.PIPE, str(folder), str(file))
    assert janitor.poll() is None
    assert folder.exists()
    janitor.communicate()
    assert sorted(os.listdir(tmp_path)) == ["kept"]


def test_a_pipe_of_the_owners_own_may_be_given(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    reading, writing = os.pipe()
    janitor = hire_janitor(reading, str(file))
    os.close(reading)
    assert file.exists()
    os.close(writing)
    assert janitor.wait() == 0
    assert not file.exists()
