"""Copies of KV run beside the engine and give way to it."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from baton.process.priority import NICENESS, lower_thread_priority


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own here")
def test_only_the_thread_that_copies_gives_way() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)  # 0: this thread

    before = niceness()
    with ThreadPoolExecutor(1, initializer=lower_thread_priority) as io:
        assert io.submit(niceness).result(timeout=5) == max(before, NICENESS)
    assert niceness() == before
