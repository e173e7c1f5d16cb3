import subprocess
import sys

CODE = """
import os
from stretto.kernels import threads
threads.configure({count})
import torch
print(torch.get_num_threads(), len(os.sched_getaffinity(0)), os.environ["GOMP_SPINCOUNT"])
"""


def configured(count, **environment):
    command = [sys.executable, "-c", CODE.format(count=count)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_the_pool_has_the_threads_asked_for_and_spins_for_a_while():
    threads, _, spins = configured(3)
    assert (threads, spins) == ("3", "10000")


def test_no_count_means_a_thread_per_core_and_the_users_spins_stay():
    threads, cores, spins = configured(0, GOMP_SPINCOUNT="7")
    assert (threads, spins) == (cores, "7")
