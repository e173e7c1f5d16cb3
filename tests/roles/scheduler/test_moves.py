from __future__ import annotations

import numpy as np

from stretto.roles.scheduler.moves import Moves
from stretto.tests.roles.scheduler.tiering import shown


def test_moves_are_numbered_and_taken_once() -> None:
    moves = Moves()
    assert moves.add("out", [3, 1], np.array([7, 8], np.int64)) == 1
    assert moves.add("save", [3], keys=b"k" * 16) == 2
    assert [shown(move) for move in moves.take()] == [
        (1, "out", [3, 1], [7, 8]),
        (2, "save", [3], [b"k" * 16]),
    ]
    assert (moves.take(), moves.number) == ([], 2)
