"""The spool and its delivery, in one process: full, stalled, crashed, and while a sink is away."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from baton.settings import StartupError
from baton.spool.delivery import Delivery
from baton.spool.sink import SinkError
from baton.spool.spool import REQUEST_BYTES, Spool
from baton.spool.writer import SegmentWriter
from baton.telemetry.scope import TelemetryScope
from baton.usage.metrics import USAGE
from baton.usage.record import UsageRecord, encode
from baton.usage.recording import recording
from baton.usage.report.files import RecordFiles, files_of
from baton.usage.sinks.jsonl import PATTERN, JsonlSink
from tests.support.clock import DEADLINE_SECONDS
from tests.support.usage.records import ListSink, begun, crashed, ended, usage_settings
from tests.support.wait import eventually, wait_for

MIB = 1024 * 1024
FAST = 0.005


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that failed is tried again soon."""
    monkeypatch.setattr("baton.spool.delivery._FIRST_RETRY_SECONDS", FAST)
    monkeypatch.setattr("baton.spool.delivery._LONGEST_RETRY_SECONDS", 4 * FAST)


def lines_of(files: Path) -> list[bytes]:
    """Return what a `JsonlSink` has written."""
    return [line for path in files.glob(PATTERN) for line in path.read_bytes().splitlines()]


@asynccontextmanager
async def opened(path: Path, *sinks: ListSink, **fields: Any) -> AsyncIterator[Spool]:
    """A spool with these sinks."""
    async with AsyncExitStack() as stack:
        names = [sink.name for sink in sinks] or ["list"]
        spool = await stack.enter_async_context(
            Spool(path, usage_settings(path, **fields), names, USAGE)
        )
        for sink in sinks:
            await stack.enter_async_context(Delivery(spool, sink, FAST))
        yield spool


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def written(spool: Spool, record: UsageRecord) -> None:
    """End a request, and return once that is written."""
    done = asyncio.Event()
    spool.end(record, done.set)
    await wait_for(done.wait())


@pytest.mark.parametrize("fsync_seconds", [0, 0.001, 60])
async def test_what_was_written_before_a_crash_is_delivered_after_it(
    tmp_path: Path, fsync_seconds: float
) -> None:
    one, two = begun("one"), begun("two")
    async with opened(tmp_path / "spool", fsync_seconds=fsync_seconds) as spool:
        assert spool.begin(one)
        assert spool.begin(two)
        await written(spool, ended(one))
        left = crashed(tmp_path / "spool", tmp_path / "crash")
    sink = ListSink()
    async with opened(left, sink):
        await eventually(lambda: len(sink.records) == 2)
    # Of the one that was running nothing is known but its prompt.
    assert sink.records == [ended(one), two]
    assert two.outcome == "lost"
    assert two.output_tokens is None
    assert names_in(left) == ["lock"]
    async with opened(left, sink):
        """Nothing is left to be delivered."""
    assert len(sink.records) == 2


async def test_a_stop_leaves_nothing_behind_once_all_is_delivered(tmp_path: Path) -> None:
    sink, records = ListSink(), [begun(str(number)) for number in range(50)]
    async with opened(tmp_path, sink) as spool:
        for record in records:
            spool.begin(record)
            spool.end(ended(record))
    assert sink.records == [ended(record) for record in records]
    assert names_in(tmp_path) == ["lock"]


async def test_a_sink_that_is_away_gets_all_of_it_later_in_order(tmp_path: Path) -> None:
    sink, records = ListSink(), [begun(str(number)) for number in range(50)]
    sink.fails = True
    async with opened(tmp_path, sink) as spool:
        for record in records[:25]:
            spool.begin(record)
            spool.end(ended(record))
        await eventually(lambda: sink.failed)
    assert sink.records == []
    async with opened(tmp_path, sink) as spool:
        await eventually(lambda: sink.failed > 1)
        sink.fails = False
        for record in records[25:]:
            spool.begin(record)
            spool.end(ended(record))
        await eventually(lambda: len(sink.records) == 50)
    assert sink.records == [ended(record) for record in records]


async def test_when_it_is_full_it_says_so_until_a_sink_has_taken_some(tmp_path: Path) -> None:
    sink = ListSink()
    sink.fails = True
    async with opened(tmp_path, sink, spool_bytes=MIB) as spool:
        taken = []
        while spool.begin(record := begun(str(len(taken)))):
            taken.append(record)
            await written(spool, ended(record))
        assert spool.full
        used = sum(path.stat().st_size for path in spool.run.directory.iterdir())
        assert 0.8 * MIB < used <= MIB
        running = begun("refused")
        assert not spool.begin(running)
        sink.fails = False
        await eventually(lambda: not spool.full)
        await eventually(lambda: len(sink.records) == len(taken))
        assert spool.begin(running)
        spool.end(ended(running))
    assert sink.records == [*(ended(record) for record in taken), ended(running)]


async def test_requests_that_run_have_room_for_their_ends(tmp_path: Path) -> None:
    async with opened(tmp_path, spool_bytes=MIB) as spool:
        running = []
        while spool.begin(record := begun(str(len(running)))):
            running.append(record)
        assert len(running) == MIB // REQUEST_BYTES
        for record in running:
            spool.end(ended(record))
        await spool.flush(5)
        used = sum(path.stat().st_size for path in spool.run.directory.iterdir())
        assert used <= MIB


async def test_a_disk_that_hangs_holds_an_end_up_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, hold = ListSink(), threading.Event()
    real = SegmentWriter.write
    monkeypatch.setattr(
        SegmentWriter, "write", lambda *args: hold.wait(10) and real(*args), raising=True
    )
    one, two = begun("one"), begun("two")
    async with opened(tmp_path, sink, stall_seconds=0.02) as spool:
        try:
            spool.begin(one)
            await written(spool, ended(one))  # and yet it is not
            assert spool.position.offset == 0
            spool.begin(two)
            await written(spool, ended(two))
        finally:
            hold.set()
        await eventually(lambda: spool.position.offset)
    assert sink.records == [ended(one), ended(two)]


async def test_a_disk_that_refuses_gets_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, refuse = ListSink(), [True]
    real = SegmentWriter.write
    monkeypatch.setattr("baton.spool.spool._RETRY_SECONDS", 0.01)

    def write(self: SegmentWriter, entries: Any) -> int:
        if refuse:
            raise OSError(28, "No space left on device")
        return real(self, entries)

    monkeypatch.setattr(SegmentWriter, "write", write)
    one, two = begun("one"), begun("two")
    async with opened(tmp_path, sink) as spool:
        spool.begin(one)
        await written(spool, ended(one))
        spool.begin(two)
        await written(spool, ended(two))
        refuse.clear()
        await eventually(lambda: len(sink.records) == 2)
    assert sink.records == [ended(one), ended(two)]


async def test_two_processes_share_a_spool_and_each_brings_its_own(tmp_path: Path) -> None:
    here, there = ListSink(), ListSink()
    one, two = begun("one"), begun("two")
    async with opened(tmp_path, here) as first, opened(tmp_path, there) as second:
        first.begin(one)
        second.begin(two)
        first.end(ended(one))
        second.end(ended(two))
    assert (here.records, there.records) == ([ended(one)], [ended(two)])


async def test_what_a_process_left_that_ended_since_is_brought_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.spool.spool.LOOK_SECONDS", FAST)
    here, there, path = ListSink(), ListSink(), tmp_path / "spool"
    one, two, three = begun("one"), begun("two"), begun("three")
    there.fails = True
    async with opened(path, here) as survivor:
        survivor.begin(three)
        async with opened(path, there) as neighbour:
            neighbour.begin(one)
            neighbour.begin(two)
            await written(neighbour, ended(one))
            await asyncio.sleep(10 * FAST)
            assert survivor.left == []  # it is held
            left = neighbour.run.directory
        await eventually(lambda: len(here.records) == 2)
        await eventually(lambda: not left.exists())
        assert here.records == [ended(one), two]
        assert len(survivor.left) == 1
        survivor.end(ended(three))
    assert here.records == [ended(one), two, ended(three)]
    assert there.records == []
    assert names_in(path) == ["lock"]


async def test_since_when_a_sink_has_not_all_is_told(tmp_path: Path) -> None:
    sink, scope = ListSink(), TelemetryScope()
    first = ended(begun("first"), ended_ms=7_000)
    with scope.entered():
        async with opened(tmp_path, sink) as spool:

            def since() -> float | None:
                return scope.registry.get_sample_value(
                    "baton_usage_sink_oldest_record_timestamp_seconds", {"sink": "list"}
                )

            assert since() == 0
            sink.fails = True
            for record in (first, ended(begun("second"), ended_ms=9_000)):
                spool.begin(record)
                spool.end(record)
            await eventually(lambda: sink.failed > 1)
            assert since() == 7
            sink.fails = False
            await eventually(lambda: since() == 0)
    assert len(sink.records) == 2


async def test_files_have_each_record_once_although_a_crash_doubled_some(tmp_path: Path) -> None:
    spool_path, files = tmp_path / "spool", tmp_path / "files"
    settings = usage_settings(spool_path, jsonl_path=files, jsonl_file_bytes=64 * 1024)
    records = [begun(str(number)) for number in range(1500)]
    async with Spool(spool_path, settings, [JsonlSink.name], USAGE) as spool:
        for record in records:
            spool.begin(record)
            spool.end(ended(record))
        await spool.flush(DEADLINE_SECONDS)
        left = crashed(spool_path, tmp_path / "crash")  # before a sink has any
        async with Delivery(spool, JsonlSink(files, settings.jsonl_file_bytes)):
            await eventually(lambda: len(lines_of(files)) == len(records))
    again = usage_settings(left, jsonl_path=files, jsonl_file_bytes=64 * 1024)
    async with recording(again):
        await eventually(lambda: not list(left.glob("*/0*1")))
    assert len(files_of(files)) > 2
    last = files_of(files)[-1]
    last.write_bytes(last.read_bytes() + b'{"id":"0193')
    found = RecordFiles(files_of(files))
    assert sorted(found, key=lambda record: int(record.request_id)) == [
        ended(record) for record in records
    ]
    assert found.doubles == 1500
    assert found.damaged == 1


async def test_a_full_disk_leaves_no_half_line_and_no_record_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    records = [begun(str(number)) for number in range(300)]
    lines = [encode(ended(record)) for record in records]
    sink = JsonlSink(files, 64 * 1024)
    real, room = os.write, 20_000

    def full(fd: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        taken = real(fd, data[:room])
        room -= taken
        return taken

    with monkeypatch.context() as patched:
        patched.setattr("baton.host.append_file.os.write", full)
        await sink.write(lines[:10])
        for _ in range(3):
            with pytest.raises(SinkError, match="No space left"):
                await sink.write(lines[10:])
            room = 1000
    await sink.write(lines[10:])
    await sink.close()
    assert len(files_of(files)) == 1
    found = RecordFiles(files_of(files))
    assert [record.request_id for record in found] == [record.request_id for record in records]
    assert found.doubles == found.damaged == 0


@pytest.mark.parametrize("local", [True, False])
async def test_a_disk_of_this_host_is_tried_again_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    waits: list[float] = []
    sink = ListSink()
    sink.local, sink.fails = local, True
    monkeypatch.setattr("baton.spool.delivery._FIRST_RETRY_SECONDS", 0.5)
    monkeypatch.setattr("baton.spool.delivery._LONGEST_RETRY_SECONDS", 30.0)

    async def wait(_: Delivery, seconds: float) -> None:
        waits.append(seconds)
        sink.fails = len(waits) < 8

    monkeypatch.setattr(Delivery, "_wait_again", wait)
    record = begun("one")
    async with opened(tmp_path, sink) as spool:
        spool.begin(record)
        await written(spool, ended(record))
        await eventually(lambda: sink.records)
    assert waits == [0.5, 1, *([2] * 6 if local else [2, 4, 8, 16, 30, 30])]


async def test_it_is_off_without_a_path_and_a_wrong_one_is_a_sentence(tmp_path: Path) -> None:
    async with recording(usage_settings(tmp_path).model_copy(update={"spool_path": None})) as none:
        assert none is None
    with pytest.raises(StartupError, match="BATON_USAGE_JSONL_PATH"):
        async with recording(usage_settings(tmp_path)):
            """Not reached."""
    (tmp_path / "file").touch()
    wrong = usage_settings(tmp_path / "file", jsonl_path=tmp_path)
    with pytest.raises(StartupError, match="BATON_USAGE_SPOOL_PATH"):
        async with recording(wrong):
            """Not reached."""


async def test_what_a_sink_has_was_on_the_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    class Watched(ListSink):
        async def write(self, records: Sequence[bytes]) -> None:
            done.append("sink")
            await super().write(records)

    monkeypatch.setattr("baton.spool.sync.flush_to_disk", lambda path: done.append(path.name))
    record = begun("one")
    async with opened(tmp_path, Watched(), fsync_seconds=3600) as spool:
        spool.begin(record)
        spool.end(ended(record))
        await eventually(lambda: "sink" in done)
        assert done == ["0000000001", spool.run.directory.name, "sink"]


async def test_a_turn_of_the_loop_is_one_write_and_a_short_request_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    real = SegmentWriter.write

    def write(self: SegmentWriter, entries: Any) -> int:
        writes.append(len(entries))
        return real(self, entries)

    monkeypatch.setattr(SegmentWriter, "write", write)
    records = [begun(str(number)) for number in range(8)]
    async with opened(tmp_path) as spool:
        for record in records:
            spool.begin(record)
        for record in records[:-1]:
            spool.end(ended(record), int)
        await written(spool, ended(records[-1]))
        assert writes == [16]
        assert spool.run.path(1).read_bytes().count(b"\n") == 8
        left = crashed(tmp_path, tmp_path / "crash")
    sink = ListSink()
    async with opened(left, sink):
        await eventually(lambda: len(sink.records) == 8)
    assert sink.records == [ended(record) for record in records]
