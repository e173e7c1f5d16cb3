"""The other process of `test_channel`: reads COUNT records, sleeping on the bell in between.

If told so it looks for a moment before it sleeps: so short that it does both all the time. Prints the digest
of the records, and how often it found none.
"""

import hashlib
import sys

from stretto.shm import bell
from stretto.shm.channel import Receiver, rest, spin


def read(receiver: Receiver, count: int, spinning: bool) -> tuple[str, int]:
    digest, sleeps = hashlib.sha256(), 0
    while count:
        sleeps += 1
        if not (spinning and (spin([receiver], 2e-6) or rest([receiver]))):
            bell.wait(receiver.bell_fd)
            receiver.hear()
        for payload in receiver.drain():
            digest.update(len(payload).to_bytes(4, "little") + payload)
            count -= 1
    return digest.hexdigest(), sleeps


if __name__ == "__main__":
    memory, items, space, records, spinning = map(int, sys.argv[1:])
    print(*read(Receiver(memory, items, space), records, bool(spinning)))
