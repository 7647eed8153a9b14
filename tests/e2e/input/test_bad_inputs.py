"""No request is worth a stall: each is answered with what is wrong, and costs others nothing.

What is played is in tests/data/bad_inputs.
"""

import ctypes
import gc
import os
from collections.abc import Callable, Coroutine
from typing import Any

from baton.rpc.channels import open_channel
from bench.harness.machine import rss_bytes
from tests.support.bad_inputs.case import Case, load
from tests.support.bad_inputs.grpc import GrpcPlayer
from tests.support.bad_inputs.http import HttpPlayer
from tests.support.clock import DEADLINE_SECONDS
from tests.support.loops.holds import LoopHolds, holds_loop

CASES = load()
BATCH = 30
HOLD_SECONDS = 0.05
"""The longest turn of the loop, on a machine as fast as one core of a Xeon with AMX."""
TRIES = 4
GROWTH = 1.1
"""What the process may have grown to."""

Play = Callable[[], Coroutine[Any, Any, str]]
"""Plays a case on one surface; returns what came of it."""


class Players:
    """Both surfaces of a cluster's frontend."""

    def __init__(self, cluster: Any, channel: Any, model: str) -> None:
        self._http = HttpPlayer(cluster.http, model)
        self._grpc = GrpcPlayer(cluster.frontend.address, channel, model)

    def prepare(self, case: Case) -> list[Play]:
        """Return what plays a case, on each surface that it is for."""
        plays: list[Play] = []
        if case.on_http:
            data = self._http.prepare(case)
            plays.append(lambda: self._http.play(case, data))
        if case.on_grpc:
            call = self._grpc.prepare(case)
            plays.append(lambda: self._grpc.play(case, call))
        return plays


async def wrong_with(case: Case, play: Play) -> list[str]:
    """Play a case; return what is not as it should be."""
    try:
        came = await play()
    except (AssertionError, TimeoutError, ConnectionError) as error:
        came = repr(error)
    return [] if came in case.expect else [f"{case}: {came}, not {' or '.join(case.expect)}"]


async def held_too_long(case: Case, plays: list[Play]) -> list[str]:
    """Return that a case holds the loop for too long, if it does so each time."""

    async def play_all() -> None:
        for play in plays:
            await play()

    held = await holds_loop(play_all, HOLD_SECONDS)
    return [f"{case}: holds the loop for {held * 1e3:.0f} ms"] if held else []


async def grows_each_time(plays: list[Play], before: int) -> bool:
    """Return whether the process keeps something of all these, whenever they are played again.

    What caches and the allocator keep, of a process with other tests' clusters, they keep once.
    """
    for _ in range(TRIES):
        after = resident_bytes()
        if after < GROWTH * before:
            return False
        before = after
        for play in plays:
            await play()
    return True


def resident_bytes() -> int:
    """Return what this process has in memory, without what malloc keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return rss_bytes(os.getpid())


async def answer(cluster: Any, model: str) -> str:
    """Return what a good request is answered, by gRPC."""
    stream = cluster.client.generate(
        "good", model=model, max_tokens=4, temperature=0, timeout=DEADLINE_SECONDS
    )
    return (await stream.answer()).text


async def test_bad_inputs(local_cluster: Any) -> None:
    cluster = await local_cluster()
    (served,) = await cluster.client.models()
    before, memory, wrong = await answer(cluster, served.name), resident_bytes(), []
    played: list[Play] = []
    async with open_channel(cluster.frontend.address) as channel:
        players = Players(cluster, channel, served.name)
        for at in range(0, len(CASES), BATCH):
            batch = {case: players.prepare(case) for case in CASES[at : at + BATCH]}
            async with LoopHolds() as holds:
                for case, plays in batch.items():
                    for play in plays:
                        wrong += await wrong_with(case, play)
            if holds.longer_than(HOLD_SECONDS):
                for case, plays in batch.items():
                    wrong += await held_too_long(case, plays)
            played += [play for plays in batch.values() for play in plays]
            assert await answer(cluster, served.name) == before
        assert not wrong, "\n".join(wrong)
        assert not await grows_each_time(played, memory)
