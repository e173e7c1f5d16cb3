from stretto.roles.executor.models.groups import group_layers


def test_layers_that_are_alike_are_one_group() -> None:
    assert group_layers([0, 0, 0]) == ((0,), 3, ((0, 0), (0, 1), (0, 2)))
    assert group_layers([8, 8]) == ((8,), 2, ((0, 0), (0, 1)))


def test_groups_are_as_large_as_the_rarest_kind_of_layer() -> None:
    windows, layers, places = group_layers([8, 8, 0, 8, 8, 0, 8])
    assert (windows, layers) == ((0, 8, 8, 8), 2)
    assert places == ((1, 0), (1, 1), (0, 0), (2, 0), (2, 1), (0, 1), (3, 0))
