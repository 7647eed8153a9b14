"""A frontend that measures how long its event loop is blocked: `python -m
bench.batches.ticking_frontend FILE`. The file has the measurement, in the form of `Ticks`.
"""

import asyncio
import mmap
import sys
import time
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from baton.process.lifecycle import main
from baton.process.process import Process
from baton.settings import FrontendSettings
from services.frontend.app import compose

TICK_SECONDS = 0.002
BOUND_SECONDS = 0.02
_form = Struct("ddd")


class Ticks(NamedTuple):
    """How late the ticks of an event loop were."""

    all: float
    late: float
    """Ticks that were late by more than BOUND_SECONDS."""
    longest_seconds: float


class TickFile:
    """The measurement in a file that two processes map: one ticks, the other one reads."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_form.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _form.size)

    def read(self) -> Ticks:
        """Return what there was since the last `reset`."""
        return Ticks(*_form.unpack_from(self._map))

    def reset(self) -> None:
        """Begin anew."""
        _form.pack_into(self._map, 0, 0, 0, 0)

    def add(self, late_seconds: float) -> None:
        """Add a tick."""
        count, late, longest = self.read()
        late += late_seconds > BOUND_SECONDS
        _form.pack_into(self._map, 0, count + 1, late, max(longest, late_seconds))


async def _compose(process: Process, settings: FrontendSettings) -> None:
    file = TickFile(Path(sys.argv[1]))

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            file.add(time.perf_counter() - due)

    await compose(process, settings)
    process.spawn(tick(), "ticks")


if __name__ == "__main__":
    main(FrontendSettings, _compose, "frontend", ())
