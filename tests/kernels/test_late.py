import sys

from stretto.kernels.late import Late


def test_the_module_is_imported_when_a_name_of_it_is_used():
    sys.modules.pop("colorsys", None)
    late = Late("colorsys")
    assert "colorsys" not in sys.modules
    assert late.ONE_THIRD == 1 / 3
    assert "colorsys" in sys.modules
