"""Kept requests are found again, whatever happened to their files, within the space for them."""

from pathlib import Path
from typing import Any

import pytest

from baton.history.kept import KeptKind, KeptRequest, line_of
from baton.history.segments import SEGMENTS, SegmentFiles
from tests.support.usage.records import begun, ended

MIB = 1024 * 1024
HOUR = 3600.0


class WallClock:
    """Seconds since the epoch, set by the test."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def kept(request_id: str, kind: KeptKind = KeptKind.SLOW, **fields: Any) -> KeptRequest:
    record = ended(begun(request_id), **fields)
    return KeptRequest(kind=kind, record=record, explanations=(b"\x00\xff",))


def files(path: Path, clock: WallClock, max_bytes: int = MIB) -> SegmentFiles:
    made = SegmentFiles(path, max_bytes, 48 * HOUR, clock)
    made.open()
    return made


def add(to: SegmentFiles, one: KeptRequest) -> int:
    return to.append(one.kind.value, [line_of(one)])


def used(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def test_what_another_process_kept_is_found_while_it_writes(tmp_path: Path) -> None:
    clock = WallClock()
    one, other = files(tmp_path, clock), files(tmp_path, clock)
    first, second = kept("a"), kept("a", began_ms=first_later())
    add(one, first)
    add(other, second)
    assert files(tmp_path, clock).find("a") == ([second, first], 0)
    assert one.find("b") == ([], 0)


def first_later() -> int:
    return begun().began_ms + 1


@pytest.mark.parametrize("request_id", ['quo"ted', "back\\slash", "ümlaut", "a" * 128])
def test_any_id_is_found(tmp_path: Path, request_id: str) -> None:
    written = files(tmp_path, WallClock())
    one = kept(request_id)
    add(written, kept("other"))
    add(written, one)
    assert written.find(request_id) == ([one], 0)


def test_an_id_in_a_text_is_not_the_request_with_it(tmp_path: Path) -> None:
    written = files(tmp_path, WallClock())
    add(written, kept("x", placement_reason='"request_id":"a"'))
    assert written.find("a") == ([], 0)


@pytest.mark.parametrize("cut", [1, 5, 200])
def test_half_a_line_of_a_crash_is_damage_and_nothing_else_is(tmp_path: Path, cut: int) -> None:
    clock = WallClock()
    written = files(tmp_path, clock)
    whole, torn = kept("a"), kept("b")
    add(written, whole)
    add(written, torn)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-cut])
    again = files(tmp_path, clock)
    assert again.find("a") == ([whole], 0)
    # Without its line break alone the line is whole.
    assert again.find("b") == (([torn], 0) if cut == 1 else ([], 1))
    add(again, torn)
    assert again.find("b").kept[0] == torn


def test_a_changed_byte_is_damage(tmp_path: Path) -> None:
    written = files(tmp_path, WallClock())
    add(written, kept("a"))
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"outcome") + 10] ^= 1
    file.write_bytes(data)
    assert written.find("a") == ([], 1)


def test_the_oldest_of_a_kind_make_room_and_other_kinds_stay(tmp_path: Path) -> None:
    clock = WallClock()
    written = files(tmp_path, clock)
    add(written, kept("failed", KeptKind.FAILED))
    for number in range(3000):
        clock.now += 1
        size = add(written, kept(f"s{number}"))
        assert size == used(tmp_path) or number % 100
    assert used(tmp_path) <= MIB // 3 + MIB // 3 // SEGMENTS + 1000
    assert used(tmp_path) > MIB // 3 - 2 * MIB // 3 // SEGMENTS
    assert len(written.find("failed").kept) == 1
    assert len(written.find("s2999").kept) == 1
    assert written.find("s0").kept == []


def test_what_is_too_old_is_deleted(tmp_path: Path) -> None:
    clock = WallClock()
    written = files(tmp_path, clock)
    add(written, kept("old"))
    clock.now += 47 * HOUR
    add(written, kept("newer"))
    assert len(written.find("old").kept) == 1
    clock.now += 8 * HOUR
    files(tmp_path, clock)
    assert written.find("old").kept == []
    assert len(written.find("newer").kept) == 1


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "slow-notes.log").write_text("mine")
    written = files(tmp_path, WallClock(), MIB)
    for number in range(600):
        add(written, kept(f"s{number}"))
    assert (tmp_path / "slow-notes.log").read_text() == "mine"
