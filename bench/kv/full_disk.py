"""A store with a full disk: event loop time per object, for two disk sizes.

    python -m bench.kv.full_disk [--mib 64] [--size 40960] [--objects 4000] [--json FILE]

The store's own code in one process, with half as much memory as disk and objects as large as a
block of the demo's model. First the disk is filled. Then each request is a turn of one of many
conversations: it reads all blocks of the turns before, and writes new ones, some of a prompt and
some of an output, which push as many out of memory and off the disk. CPU time is that of the event
loop's thread alone; the disk's own threads check and write. The second disk is ten times as large:
the cost per object should not grow with it.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from baton.kv.digest import start_digest
from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from bench.harness import cli
from bench.harness.table import Table
from services.kvstore.disk.file import SLAB_BYTES, DiskFile
from services.kvstore.disk_setup import add_disk
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.slot import Lease, Slot
from services.kvstore.reads.read_request import ReadRequest, ReadResult
from services.kvstore.store import Store

LAYOUT = b"L" * 16
MIB = 1024 * 1024
PROMPT_BLOCKS, ANSWER_BLOCKS = 6, 2
NEW_BLOCKS = PROMPT_BLOCKS + ANSWER_BLOCKS
PROMPT_SECONDS, ANSWER_SECONDS = 0.002, 0.1
"""Seconds to recompute a block: an output takes a step for each of its tokens."""
TURNS = 8
"""Turns of a conversation; then another one replaces it."""


class Requests:
    """Writes and reads as workers do; leases are returned at once.

    Args:
        store: the store whose memory is used.
        size: bytes of an object.
        conversations: number of concurrent conversations.
    """

    def __init__(self, store: Store, size: int, conversations: int) -> None:
        self._store = store
        self._size = size
        self._next = 0
        self._draw = random.Random(7)
        self._turns: list[list[ObjectId]] = [[] for _ in range(conversations)]
        self._data = memoryview(bytes(range(256)) * (-(-size // 256)))[:size]

    def serve(self) -> None:
        """Serve a turn of a conversation."""
        number = self._draw.randrange(len(self._turns))
        blocks = self._turns[number]
        if len(blocks) >= TURNS * NEW_BLOCKS:
            blocks = self._turns[number] = []
        store = self._store
        if blocks:
            request = ReadRequest(self, 1, blocks, store.clock() + 5, instant=True)
            store.waits.add(request, store.clock())
        blocks += [self._write(PROMPT_SECONDS) for _ in range(PROMPT_BLOCKS)]
        blocks += [self._write(ANSWER_SECONDS) for _ in range(ANSWER_BLOCKS)]
        store.flush()

    def _write(self, seconds: float) -> ObjectId:
        store, data = self._store, self._data
        self._next += 1
        name = ObjectId(LAYOUT, self._next.to_bytes(16, "big"))
        (slot,) = store.reserve([name], self._size, recompute_seconds=seconds)
        if isinstance(slot, Slot):
            store.arena.view(slot)[:] = data
            digest = start_digest(name, data.nbytes)
            digest.update(data)
            store.commit([slot], [digest.digest()])
        return name

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:  # noqa: ARG002
        for _, lease in result.ready:
            self._store.waits.release(lease)

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        """No effect, as leases are returned at once."""


async def run(path: Path, disk_mib: int, size: int, objects: int) -> dict[str, float]:
    """Fill a disk; return the cost of writing `objects` more."""
    total = disk_mib * MIB
    with Arena(Path("/dev/shm"), total // 2 // SLAB_BYTES * SLAB_BYTES) as arena:
        while arena.touch_next():
            pass
        store = Store("bench", arena, EventLog("e"), reservation_seconds=60, lease_seconds=60)
        disk = add_disk(store, DiskFile(path, total), [])
        # Together they have 1.5 times as many blocks as fit.
        requests = Requests(store, size, 9 * total // size // (TURNS * NEW_BLOCKS) // 2)

        async def serve() -> None:
            requests.serve()
            while disk.busy and store.table.free_bytes < NEW_BLOCKS * size:
                await asyncio.sleep(0.001)  # like a writer that is never too fast
            await asyncio.sleep(0)

        try:
            while disk.index.evictions < total // size:
                await serve()
            spilled, began, cpu = disk.counts.written_bytes, time.perf_counter(), time.thread_time()
            for _ in range(objects // NEW_BLOCKS):
                await serve()
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - began
            spilled = (disk.counts.written_bytes - spilled) // size
        finally:
            await store.close_disk()
    return {"spilled": spilled, "objects/s": objects / wall, "us": cpu / objects * 1e6}


async def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    table = Table(
        ("disk, MiB", "<12"), ("spilled", "8d"), ("objects/s", "10.0f"), ("CPU us", "8.0f")
    )
    with tempfile.TemporaryDirectory() as directory:
        for mib in (options.mib, 10 * options.mib):
            one = await run(Path(directory) / f"disk-{mib}", mib, options.size, options.objects)
            found[str(mib)] = one
            table.row(str(mib), *one.values())
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=64, help="size of the smaller disk")
    parser.add_argument("--size", type=int, default=40_960)
    parser.add_argument("--objects", type=int, default=4000)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--mib 4 --objects 400")
