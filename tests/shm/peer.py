"""The other process of `test_channel`: reads COUNT records, sleeping on the bell in between.

Prints their digest, and how often it slept.
"""

import hashlib
import sys

from stretto.shm import bell
from stretto.shm.channel import Receiver


def read(receiver: Receiver, count: int) -> tuple[str, int]:
    digest, sleeps = hashlib.sha256(), 0
    while count:
        sleeps += 1
        bell.wait(receiver.bell_fd)
        receiver.hear()
        for payload in receiver.drain():
            digest.update(len(payload).to_bytes(4, "little") + payload)
            count -= 1
    return digest.hexdigest(), sleeps


if __name__ == "__main__":
    memory, items, space, records = map(int, sys.argv[1:])
    print(*read(Receiver(memory, items, space), records))
