import pytest

from stretto.kernels.generation import choose, pretend

TABLE = {80: "A100", 90: "H100"}


@pytest.mark.parametrize(
    ("capability", "expected"), [(80, "A100"), (89, "A100"), (90, "H100"), (120, "H100")]
)
def test_the_newest_generation_that_is_no_newer_than_the_gpu(capability, expected):
    with pretend(capability):
        assert choose(TABLE) == expected


def test_an_older_gpu_is_refused_with_both_numbers():
    with pretend(75), pytest.raises(ValueError, match=r"capability 7\.5.* need 8\.0"):
        choose(TABLE)
