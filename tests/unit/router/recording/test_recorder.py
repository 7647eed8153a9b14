"""Recordings are bounded, in parts, and read as they were written; damage is named."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from services.router.policy.costs import Policy
from services.router.recording import recorder as recorder_module
from services.router.recording.files import RecordingError, part, read
from services.router.recording.recorder import Recorder
from services.router.recording.records import FORMAT, FleetTended, Opened, Record
from services.router.state.rates import Bandwidths

OPENED = Opened(FORMAT, "r/1", Policy(), Bandwidths(), 2.0)


def ticks(count: int) -> list[Record]:
    return [OPENED, *(FleetTended(float(number)) for number in range(count))]


def written(directory: Path, records: list[Record], **limits: Any) -> Recorder:
    recorder = Recorder(directory, **{"max_bytes": 1 << 20, **limits})
    for record in records:
        recorder.write(record)
        recorder.flush()
    return recorder


def test_parts_follow_each_other(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "r"
    written(directory, ticks(50), part_bytes=200)
    assert len(list(directory.iterdir())) > 3
    assert list(read(directory)) == ticks(50)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_recording_ends_at_its_limit_with_a_whole_record(tmp_path: Path) -> None:
    written(tmp_path / "r", ticks(500), max_bytes=2_000)
    records = list(read(tmp_path / "r"))
    assert records == ticks(500)[: len(records)]
    size = sum(path.stat().st_size for path in (tmp_path / "r").iterdir())
    assert 1_900 < size <= 2_000


def test_a_slow_disk_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_PENDING_BYTES", 1_000)
    recorder = Recorder(tmp_path / "r", 1 << 20)
    for record in ticks(500):
        recorder.write(record)
    recorder.flush()
    recorder.write(FleetTended(1e9))
    recorder.flush()
    records = list(read(tmp_path / "r"))
    assert records == ticks(500)[: len(records)]
    assert 10 < len(records) < 100


def test_a_disk_that_fails_ends_it(tmp_path: Path) -> None:
    recorder = written(tmp_path / "r", ticks(5))
    part(tmp_path / "r", 1).unlink()
    part(tmp_path / "r", 1).mkdir()
    recorder.write(FleetTended(1.0))
    recorder.flush()
    part(tmp_path / "r", 1).rmdir()
    recorder.write(FleetTended(2.0))
    recorder.flush()
    assert list((tmp_path / "r").iterdir()) == []


class SlowDisk(Recorder):
    """Takes its time for the first write."""

    slow = True

    def _append(self, data: bytearray) -> OSError | None:
        if data and self.slow:
            self.slow = False
            time.sleep(0.05)
        return super()._append(data)


async def test_what_is_written_when_it_is_cancelled_stays_before_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.0)
    recorder = SlowDisk(tmp_path / "r", 1 << 20)
    running = asyncio.create_task(recorder.run())
    records = ticks(10)
    for record in records[:5]:
        recorder.write(record)
    while recorder.slow:
        await asyncio.sleep(0)
    for record in records[5:]:
        recorder.write(record)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(read(tmp_path / "r")) == records


class BrokenOnce(Recorder):
    """Fails once; a record is taken meanwhile."""

    broken = True

    def _append(self, data: bytearray) -> OSError | None:
        if self.broken:
            self.broken = False
            self.write(FleetTended(5.0))
            return OSError(28, "No space left on device", "000001.records")
        return super()._append(data)


def test_nothing_is_written_behind_what_is_missing(tmp_path: Path) -> None:
    recorder = BrokenOnce(tmp_path / "r", 1 << 20)
    recorder.write(OPENED)
    recorder.flush()
    recorder.flush()
    assert list((tmp_path / "r").iterdir()) == []


async def test_what_was_taken_is_written_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.0)
    recorder = Recorder(tmp_path / "r", 1 << 20)
    running = asyncio.create_task(recorder.run())
    for record in ticks(300):
        recorder.write(record)
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(read(tmp_path / "r")) == ticks(300)


def test_a_last_record_that_was_not_finished_is_none(tmp_path: Path) -> None:
    written(tmp_path / "r", ticks(20))
    path = part(tmp_path / "r", 1)
    whole = path.read_bytes()
    for lost in (1, 5, 12):
        path.write_bytes(whole[:-lost])
        records = list(read(tmp_path / "r"))
        assert records == ticks(20)[: len(records)]
        assert len(records) in (19, 20)


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"has no recording: no file name ends with \.records"):
        list(read(tmp_path))
    directory = tmp_path / "r"
    written(directory, ticks(50), part_bytes=200)
    first = part(directory, 1).read_bytes()

    part(directory, 1).write_bytes(first[:-3])
    with pytest.raises(RecordingError, match=r"000001\.records is damaged before byte"):
        list(read(directory))
    part(directory, 1).write_bytes(first[:4] + b"\xc1" + first[5:])
    with pytest.raises(RecordingError, match=r"000001\.records, before byte \d+: "):
        list(read(directory))
    part(directory, 1).write_bytes(b"")
    with pytest.raises(RecordingError, match=r"000002\.records is not a recording of format 5"):
        list(read(directory))
    part(directory, 1).unlink()
    with pytest.raises(RecordingError, match=r"000001\.records is missing"):
        list(read(directory))


def test_another_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "r", [Opened(FORMAT + 1, "r/1", Policy(), Bandwidths(), 2.0)])
    with pytest.raises(RecordingError, match="is not a recording of format 5"):
        list(read(tmp_path / "r"))
