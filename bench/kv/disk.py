"""The disk tier against the bare file: bytes per second out of memory and back.

    python -m bench.kv.disk [--path FILE] [--mib 512] [--size 262144] [--json FILE]

`raw` writes and reads the same pieces, from and to the same arena, with the same direct I/O on one
thread and nothing else. `tier` is the store's own code in one process, with a quarter of the
data for memory: objects are reserved, filled and committed as fast as the tier takes them, then
fetched. Digests are checked both ways; `digest` says what that alone costs. Best of three.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from baton.kv.digest import start_digest
from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from bench.harness import cli
from bench.harness.table import Table
from services.kvstore.disk.file import SLAB_BYTES, DiskFile, Record
from services.kvstore.disk_setup import add_disk
from services.kvstore.memory.arena import Arena
from services.kvstore.memory.slot import Lease, Slot
from services.kvstore.reads.read_request import ReadRequest, ReadResult
from services.kvstore.store import Store

LAYOUT = b"L" * 16
MIB = 1024 * 1024
BATCH_BYTES = 2 * MIB


class Reader:
    """Gives back what it is leased."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0
        self.done = asyncio.Event()

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:  # noqa: ARG002
        self.count += len(result.ready)
        for _, lease in result.ready:
            self.store.waits.release(lease)
        if result.done:
            self.done.set()

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        """Never: it gives back at once."""


def name(number: int) -> ObjectId:
    return ObjectId(LAYOUT, number.to_bytes(16, "big"))


def digest(object_id: ObjectId, data: memoryview) -> bytes:
    made = start_digest(object_id, data.nbytes)
    made.update(data)
    return made.digest()


def raw(path: Path, arena: Arena, total: int, size: int) -> dict[str, float]:
    """Seconds to write and read the pieces with nothing around it."""
    file = DiskFile(path, total)
    view = arena._view[arena.header.data_at :]
    slots = arena.header.data_bytes // size
    pieces = [view[n % slots * size : n % slots * size + size] for n in range(total // size)]
    records = [Record(name(n), size, size, n * size, 0, b"", "", 1.0) for n in range(total // size)]
    marks = [time.perf_counter()]
    try:
        for record, piece in zip(records, pieces, strict=True):
            file.write(record, piece)
        marks.append(time.perf_counter())
        for record, piece in zip(records, pieces, strict=True):
            file.read(record.offset, piece)
        marks.append(time.perf_counter())
        for piece in pieces:
            digest(name(0), piece)
        marks.append(time.perf_counter())
        steps = zip(("raw write", "raw read", "digest"), marks, marks[1:], strict=False)
        return {step: after - before for step, before, after in steps}
    finally:
        file.close()


async def tier(path: Path, arena: Arena, total: int, size: int) -> dict[str, float]:
    """Seconds to put everything, most of which must go to disk, and to get it back."""
    store = Store("bench", arena, EventLog("e"), reservation_seconds=60, lease_seconds=60)
    file = DiskFile(path, total + total // 4)
    disk = add_disk(store, file, [])
    count, batch = total // size, max(1, BATCH_BYTES // size)
    seconds = {}
    try:
        data = memoryview(bytes(range(256)) * (size // 256))
        digests = [digest(name(n), data) for n in range(count)]
        began = time.perf_counter()
        for first in range(0, count, batch):
            for number in range(first, min(first + batch, count)):
                (slot,) = store.reserve([name(number)], size)
                assert isinstance(slot, Slot)
                arena.view(slot)[:] = data
                store.commit([slot], [digests[number]])
            store.flush()
            while store.table.free_bytes < 2 * BATCH_BYTES:  # as a writer that is never too fast
                await asyncio.sleep(0)
        seconds["tier write"] = time.perf_counter() - began
        written = disk.counts.written_bytes
        reader = Reader(store)
        below = [n for n in range(count) if store.table.get(name(n)) is None]
        request = ReadRequest(reader, 1, [name(n) for n in below], store.clock() + 60, instant=True)
        began = time.perf_counter()
        store.waits.add(request, store.clock())
        while not reader.done.is_set():
            store.flush()
            await asyncio.sleep(0)
        seconds["tier read"] = (time.perf_counter() - began) * total / (len(below) * size)
        seconds["tier write"] *= total / written
        assert reader.count == len(below), f"{reader.count} of {len(below)} came back"
    finally:
        await store.close_disk()
    return seconds


def measure(options: argparse.Namespace) -> dict[str, float]:
    total = options.mib * MIB
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        path = options.path or Path(directory) / "disk"
        for _ in range(options.rounds):
            with Arena(Path("/dev/shm"), total // 4 // SLAB_BYTES * SLAB_BYTES) as arena:
                while arena.touch_next():
                    pass
                found = raw(path, arena, total, options.size)
                path.unlink()
                found |= asyncio.run(tier(path, arena, total, options.size))
                path.unlink()
            for key, seconds in found.items():
                best[key] = min(best.get(key, seconds), seconds)
    rates = {key: total / seconds / 1e9 for key, seconds in best.items()}
    print(f"{options.mib} MiB in objects of {options.size // 1024} KiB")
    table = Table(("", "<12"), ("GB/s", "8.2f"), ("of raw", "6.2f"))
    for key, rate in rates.items():
        beside = rates.get("raw " + key.split()[-1]) if key.startswith("tier") else None
        table.row(key, rate, rate / beside if beside else "")
    return rates


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", type=Path, help="default: in the temporary directory")
    parser.add_argument("--mib", type=int, default=512, help="at least 256")
    parser.add_argument("--size", type=int, default=256 * 1024)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=3, smallest="--rounds 1 --mib 256")
