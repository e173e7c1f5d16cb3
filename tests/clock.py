"""A clock for tests of what sleeps: time passes only while somebody does."""

TICK = 25e-6
"""What the shortest sleep takes."""


class Clock:
    """Stands for the `time` of the module under test; threads may share it where only one sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += max(seconds, TICK)
