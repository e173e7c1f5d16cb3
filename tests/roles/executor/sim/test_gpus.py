from typing import get_args, get_type_hints

from stretto.roles.config import Config
from stretto.roles.executor.sim.gpus import GPUS


def test_the_option_offers_exactly_the_table() -> None:
    (names,) = get_args(get_type_hints(Config, include_extras=True)["sim_gpu"])[:1]
    assert get_args(names) == tuple(GPUS)
