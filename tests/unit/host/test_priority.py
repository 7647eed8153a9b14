"""Threads that give way do it alone, and on top of what they were."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from baton.host.priority import BEHIND_STEPS, add_niceness, can_add_niceness


@pytest.mark.skipif(not can_add_niceness(), reason="threads have no niceness of their own here")
def test_only_the_thread_that_asks_gives_way() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)  # 0: this thread

    before = niceness()
    with ThreadPoolExecutor(1, initializer=add_niceness, initargs=(BEHIND_STEPS,)) as pool:
        assert pool.submit(niceness).result(timeout=5) == min(19, before + BEHIND_STEPS)
        pool.submit(add_niceness, 19).result(timeout=5)
        assert pool.submit(niceness).result(timeout=5) == 19
    assert niceness() == before
