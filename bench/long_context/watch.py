"""What the processes of a cluster use while a prompt is computed: time, progress and memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.fleet import Fleet, Member, total
from bench.harness.machine import cpu_seconds

PERIOD_SECONDS = 0.5
COMPUTED = "baton_worker_computed_tokens_total"


@dataclass
class Watched:
    """Samples of a cluster's processes."""

    progress: list[tuple[int, float]] = field(default_factory=list)
    """Tokens computed by the prefill worker so far, and its CPU seconds."""
    peak: dict[str, int] = field(default_factory=dict)
    """Most bytes of each process's own memory."""


def own_bytes(pid: int) -> int:
    """Return the resident memory of a process without memory that it shares: stores' arenas."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def own_memory(fleet: Fleet) -> dict[str, int]:
    """Return the own memory of each process, by instance ID."""
    return {member.id: own_bytes(member.pid) for member in fleet.of()}


async def computed(members: Sequence[Member]) -> int:
    """Return the tokens that workers have computed."""
    return int(sum([total(await member.metrics(), COMPUTED) for member in members]))


@asynccontextmanager
async def watching(fleet: Fleet) -> AsyncIterator[Watched]:
    """Sample the processes until the block exits."""
    watched = Watched()
    (prefill,) = fleet.of("prefill")
    begun = await computed([prefill])

    async def sample() -> None:
        while True:
            tokens = await computed([prefill]) - begun
            if not watched.progress or tokens > watched.progress[-1][0]:
                watched.progress.append((tokens, cpu_seconds(prefill.pid)))
            for name, size in own_memory(fleet).items():
                watched.peak[name] = max(size, watched.peak.get(name, 0))
            await asyncio.sleep(PERIOD_SECONDS)

    task = asyncio.create_task(sample())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
