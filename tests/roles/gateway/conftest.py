"""Gateways to knock at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stretto.tests.roles.gateway.house import House


@pytest.fixture(scope="session")
def shared_house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


@pytest.fixture
def house(shared_house: House) -> House:
    """A gateway with default options and no API key, shared by all tests."""
    shared_house.reset()
    return shared_house


@pytest.fixture
def build() -> Iterator[Callable[..., House]]:
    """Makes gateways with options of their own."""
    houses: list[House] = []

    def make(**options: Any) -> House:
        houses.append(House(**options))
        return houses[-1]

    yield make
    for house in houses:
        house.close()
