"""Store, writers and readers are killed and frozen at random moments, under load.

Whatever happens: no reader takes bytes that are not its key's, no reader finds a committed object
changed (a write into a slot that belongs to another by now), and nothing stays leased, reserved or
in quarantine once everybody is gone.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from tests.support.processes.launcher import Launcher, Piped
from tests.support.stores import MIB, assert_baseline, stat_at
from tests.support.wait import eventually

SOAKER = Path(__file__).parent / "soaker.py"
WORKERS = ("put", "put", "get", "get")


class Worker:
    """A soaker's process and what it said."""

    def __init__(self, launcher: Launcher, what: str, file: Path) -> None:
        self.what = what
        self.rounds = 0
        self.moved = 0
        self.wrong: list[str] = []
        self._launcher = launcher
        self._file = file
        self._starts = 0
        self._piped: Piped | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, seed: int) -> None:
        self._starts += 1
        arguments = [str(SOAKER), self.what, str(self._file), f"{seed}{self._starts}"]
        self._piped = await self._launcher.launch_piped(arguments, os.environ)
        self._reading = asyncio.create_task(self._read(self._piped.stdout))

    async def _read(self, output: asyncio.StreamReader) -> None:
        while line := (await output.readline()).decode():
            if not line.endswith("\n"):
                return  # it was killed amid a line
            if line.startswith("ok"):
                self.rounds += 1
                self.moved += int(line.split()[1])
            else:
                self.wrong.append(line)

    async def at_work(self) -> None:
        """Return once it has done something more."""
        before = self.rounds
        await eventually(lambda: self.rounds > before, 60)

    def signal(self, number: signal.Signals) -> None:
        assert self._piped is not None
        assert self._piped.process.poll() is None, f"a {self.what} worker ended by itself"
        self._piped.process.send_signal(number)

    async def kill(self) -> None:
        if self._piped is not None and self._reading is not None:
            self._piped.close()
            await self._reading


@pytest.mark.parametrize(
    ("moments", "seed"),
    [
        pytest.param(8, 5, id="some"),
        pytest.param(200, 6, id="whole", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
async def test_kills_and_freezes_at_random_moments(
    spawn_service, launcher: Launcher, tmp_path: Path, moments: int, seed: int
) -> None:
    draw = random.Random(seed)
    directory = tmp_path / "arena"
    directory.mkdir()
    env = {
        "BATON_STORE_ARENA_DIR": str(directory),
        "BATON_STORE_ARENA_BYTES": str(4 * MIB),  # half of what there is to put: always full
        "BATON_STORE_RESERVATION_SECONDS": "0.5",
        "BATON_STORE_LEASE_SECONDS": "0.5",
    }
    file = tmp_path / "address"
    store = await spawn_service("kvstore", env, instance_id="store")
    file.write_text(store.address)
    workers = [Worker(launcher, what, file) for what in WORKERS]
    bad = hits = 0
    try:
        for number, worker in enumerate(workers):
            await worker.start(number)
        for _ in range(moments):
            for worker in workers:
                await worker.at_work()
            await asyncio.sleep(draw.uniform(0, 0.1))
            victim = draw.choice([store, *workers])
            freeze = draw.random() < 0.5
            if freeze:
                victim.signal(signal.SIGSTOP)
                # Longer and shorter than reservations and leases live.
                await asyncio.sleep(draw.choice([0.05, 0.3, 0.9]))
                victim.signal(signal.SIGCONT)
            elif victim is store:
                seen = await stat_at(store.address)
                bad, hits = bad + seen.bad_objects, hits + seen.hits
                store.kill()
                store = await spawn_service("kvstore", env, instance_id="store")
                file.write_text(store.address)
            else:
                await victim.kill()
                await victim.start(draw.randrange(1 << 30))
        for worker in workers:
            await worker.at_work()
        seen = await stat_at(store.address)
        bad, hits = bad + seen.bad_objects, hits + seen.hits
    finally:
        ends = await asyncio.gather(*(worker.kill() for worker in workers), return_exceptions=True)
    assert ends == [None] * len(workers)
    assert [worker.wrong for worker in workers] == [[], [], [], []]
    assert bad == 0
    moved = {what: sum(w.moved for w in workers if w.what == what) for what in WORKERS}
    assert min(moved.values()) > 100, moved
    assert hits > 100
    await assert_baseline(store.address)
    assert await store.stop() == 0
    assert list(directory.iterdir()) == []
