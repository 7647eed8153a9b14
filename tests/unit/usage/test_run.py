"""The files of a spool: who holds what, what is removed when, and what a reader makes of them."""

import itertools
import os
from pathlib import Path

import pytest

from baton.spool.frames import BEGIN, END
from baton.spool.reader import RunReader
from baton.spool.run import START, Run, claim, claim_left
from baton.spool.writer import SegmentWriter
from baton.usage.record import UsageRecord, decode
from tests.support.usage.records import begun, crashed, ended, new_run

SMALL = 2000


def read_all(run: Run, *, left: bool) -> tuple[list[UsageRecord], list[UsageRecord], int]:
    """Return what ended, what was lost, and damaged bytes."""
    reader, end = RunReader(run, "list", left=left), run.end()
    at, records, damaged = START, [], 0
    while at < end:
        batch = reader.read(end)
        at = batch.end
        records += map(decode, batch.records)
        damaged += batch.damaged
    return records, [decode(body) for body in reader.lost()], damaged


def test_a_run_is_one_process_s_until_that_has_ended(tmp_path: Path) -> None:
    first, left = claim(tmp_path, ["list"])
    assert left == []
    second, left = claim(tmp_path, ["list"])
    assert left == []
    assert first.directory != second.directory
    first.release()
    third, (taken,) = claim(tmp_path, ["list"])
    assert taken.directory == first.directory
    _, left = claim(tmp_path, ["list"])
    assert left == []
    taken.remove()
    assert not taken.directory.exists()
    assert third.directory.exists()


def test_what_was_cut_off_while_it_was_made_is_cleaned_away(tmp_path: Path) -> None:
    empty = tmp_path / "0193abcdef01-00000000"
    empty.mkdir()
    _, left = claim(tmp_path, ["list"])
    assert left == []
    assert not empty.exists()


def test_a_process_that_looks_for_runs_takes_those_that_nobody_holds(tmp_path: Path) -> None:
    held = new_run(tmp_path)
    free = new_run(tmp_path)
    assert claim_left(tmp_path, ["list"]) == []
    free.release()
    (taken,) = claim_left(tmp_path, ["list"])
    assert taken.directory == free.directory
    assert claim_left(tmp_path, ["list"]) == []
    taken.remove()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [held.directory.name]


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_tail_damaged_at_any_byte_loses_only_what_it_says(tmp_path: Path, damage: str) -> None:
    run = new_run(tmp_path / "spool")
    writer = SegmentWriter(run, SMALL * 100, sync=False)
    one, two = begun("one"), begun("two")
    writer.write([(BEGIN, one), (BEGIN, two), (END, ended(one))])
    before = writer.position.offset
    writer.write([(END, ended(two))])
    path = run.path(1)
    whole = path.read_bytes()
    assert read_all(run, left=True) == ([ended(one), ended(two)], [], 0)
    for at in range(before, len(whole)):
        tail = whole[:at]
        if damage == "changed":
            tail += bytes([whole[at] ^ 1]) + whole[at + 1 :]
        path.write_bytes(tail)
        # The end of the second is not known any more: it is lost, and told as such.
        assert read_all(run, left=True) == ([ended(one)], [two], len(tail) - before)


def test_a_long_request_outlives_the_segments_of_its_begin(tmp_path: Path) -> None:
    run = new_run(tmp_path / "spool")
    writer = SegmentWriter(run, SMALL, sync=False)
    long = begun("long")
    writer.write([(BEGIN, long)])
    for number in range(40):
        short = begun(f"short-{number}")
        writer.write([(BEGIN, short), (END, ended(short))])
        run.acknowledge("list", writer.position)
        assert len(run.segments()) == 1
    assert run.segments()[0] > 5
    _, (left,) = claim(crashed(tmp_path / "spool", tmp_path / "crash"), ["list"])
    assert read_all(left, left=True) == ([], [long], 0)


def test_a_long_request_outlives_them_also_where_each_write_fails_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path / "spool")
    writer = SegmentWriter(run, SMALL, sync=False)
    long, real, calls = begun("long"), os.write, itertools.count()
    writer.write([(BEGIN, long)])

    def half_then_none(fd: int, data: memoryview) -> int:
        match next(calls) % 3:
            case 0:
                return real(fd, data[: len(data) // 2])
            case 1:
                raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr("baton.host.append_file.os.write", half_then_none)
    for number in range(40):
        short = begun(f"short-{number}")
        entries = [(BEGIN, short), (END, ended(short))]
        with pytest.raises(OSError, match="No space"):
            writer.write(entries)
        writer.write(entries)
        run.acknowledge("list", writer.position)
        assert len(run.segments()) == 1
    _, (left,) = claim(crashed(tmp_path / "spool", tmp_path / "crash"), ["list"])
    assert read_all(left, left=True) == ([], [long], 0)


def test_what_a_sink_has_is_not_brought_to_it_again(tmp_path: Path) -> None:
    run = new_run(tmp_path / "spool", "list", "slow")
    writer = SegmentWriter(run, SMALL, sync=False)
    records = [begun(str(number)) for number in range(20)]
    for record in records:
        writer.write([(BEGIN, record), (END, ended(record))])
    segments = run.segments()
    reader = RunReader(run, "list", left=False)
    batches = [reader.read(writer.position) for _ in range(2)]
    had, (oldest, _) = sum(len(batch.records) for batch in batches), batches[-1].end
    assert run.acknowledge("list", batches[-1].end) == 0  # the other one has nothing yet
    run.release()
    _, (again,) = claim(tmp_path / "spool", ["list", "slow"])
    brought, lost, _ = read_all(again, left=True)
    assert brought == [ended(record) for record in records[had:]]
    assert lost == []
    assert again.acknowledge("slow", again.end()) > 0
    assert again.segments() == [number for number in segments if number >= oldest]


def test_an_acknowledgement_that_is_lost_brings_records_again_and_no_others(
    tmp_path: Path,
) -> None:
    run = new_run(tmp_path / "spool")
    writer = SegmentWriter(run, SMALL * 100, sync=False)
    one, two = begun("one"), begun("two")
    writer.write([(BEGIN, one), (END, ended(one))])
    run.acknowledge("list", writer.position)
    writer.write([(BEGIN, two), (END, ended(two))])
    run.release()
    _, (left,) = claim(tmp_path / "spool", ["list"])
    assert read_all(left, left=True)[0] == [ended(two)]
    (left.directory / "list.ack").write_bytes(b"[1,")
    torn = Run(left.directory, -1, ["list"])
    assert read_all(torn, left=True)[0] == [ended(one), ended(two)]


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_a_disk_that_takes_half_of_a_batch_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_cut: bool
) -> None:
    run = new_run(tmp_path / "spool")
    writer = SegmentWriter(run, SMALL * 100, sync=False)
    one, two = begun("one"), begun("two")
    writer.write([(BEGIN, one)])
    real, full = os.write, itertools.count()

    def half(fd: int, data: memoryview) -> int:
        if next(full):
            raise OSError(28, "No space left on device")
        return real(fd, data[: len(data) * 3 // 4])

    def refuse(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    batch = [(BEGIN, two), (END, ended(one)), (END, ended(two))]
    with monkeypatch.context() as patched:
        patched.setattr("baton.host.append_file.os.write", half)
        if not can_be_cut:
            patched.setattr("baton.host.append_file.os.ftruncate", refuse)
        with pytest.raises(OSError, match="No space"):
            writer.write(batch)
    writer.write(batch)
    brought, lost, damaged = read_all(run, left=True)
    assert {record.id: record for record in brought} == {
        one.id: ended(one),
        two.id: ended(two),
    }
    assert lost == []
    assert len(run.segments()) == (1 if can_be_cut else 2)
    assert bool(damaged) is not can_be_cut
