"""The arena's file: refused where it does not fit, owned by the living, gone with its owner."""

from dataclasses import replace
from pathlib import Path

import pytest

from baton.kv.arena.file import PAGE_BYTES, ArenaFileError, ArenaHeader, MappedArena
from baton.kv.arena.writer_lock import WriterLock, WriterLockProbe
from baton.settings import StartupError
from services.kvstore.memory import arena
from services.kvstore.memory.arena import Arena, check_room, memory_limits

MIB = 1024 * 1024


def test_the_file_lives_as_long_as_its_owner(tmp_path: Path) -> None:
    with Arena(tmp_path, 2 * MIB) as arena:
        assert arena.path.exists()
        assert arena.path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []


def test_files_of_dead_owners_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    dead = [tmp_path / "baton-kv-1.arena", tmp_path / "baton-kv-2.writer"]
    for path in dead:
        path.write_bytes(b"left behind")
    other = tmp_path / "somebody-elses.arena"
    other.touch()
    held = WriterLock(tmp_path)
    with Arena(tmp_path, MIB) as first, Arena(tmp_path, MIB) as second:
        assert set(tmp_path.iterdir()) == {first.path, second.path, other, held.path}
    held.release()


def test_the_arena_is_sparse_until_it_is_touched(tmp_path: Path) -> None:
    with Arena(tmp_path, 4 * MIB) as arena:
        assert arena.path.stat().st_blocks * 512 < MIB
        steps = 0
        while arena.touch_next():
            steps += 1
        assert steps == 4
        assert arena.touched_bytes == 4 * MIB
        assert arena.path.stat().st_blocks * 512 >= 4 * MIB


def test_a_client_sees_what_the_owner_wrote(tmp_path: Path) -> None:
    with Arena(tmp_path, MIB) as arena:
        mapped = MappedArena(arena.path)
        assert mapped.header == arena.header
        start = arena.header.data_at
        mapped.writable(start + PAGE_BYTES, 5)[:] = b"hello"
        assert bytes(mapped.readable(start + PAGE_BYTES, 5)) == b"hello"
        arena.carve(PAGE_BYTES, 2 * PAGE_BYTES)
        table = [mapped.generations[mapped.page(start + page * PAGE_BYTES)] for page in range(4)]
        assert table == [0, 1, 1, 0]
        with pytest.raises(TypeError):
            mapped.readable(start, 1)[:] = b"x"


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 1), (-4096, 4096), (0, 1 << 40)])
def test_offsets_outside_of_the_data_are_refused(tmp_path: Path, offset: int, length: int) -> None:
    with Arena(tmp_path, MIB) as arena:
        mapped = MappedArena(arena.path)
        start = arena.header.data_at - 1 if offset <= 0 and length == 1 else arena.header.data_at
        with pytest.raises(ArenaFileError):
            mapped.readable(start + offset, length)


def test_other_files_are_no_arenas(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ArenaFileError, match="open"):
        MappedArena(path)
    header = ArenaHeader.plan(MIB)
    wrong = replace(header, data_bytes=1 << 40)
    for content in (b"", b"x" * 5000, header.pack(), wrong.pack()):
        path.write_bytes(content)
        with pytest.raises(ArenaFileError):
            MappedArena(path)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(ArenaFileError):
        MappedArena(path)


def test_secrets_differ() -> None:
    assert ArenaHeader.plan(MIB).secret != ArenaHeader.plan(MIB).secret


def test_what_does_not_fit_is_refused_with_what_bounds_it(tmp_path: Path) -> None:
    def limits(_: Path) -> dict[str, int]:
        return {"/dev/shm": 100 * MIB, "the machine": 50 * MIB}

    check_room(tmp_path, 50 * MIB, limits)
    with pytest.raises(StartupError, match=r"51 MiB, and the machine has only 50 MiB.*ARENA_BYTES"):
        check_room(tmp_path, 50 * MIB + 1, limits)
    with pytest.raises(StartupError, match="BATON_STORE_ARENA_BYTES"):
        Arena(tmp_path, 1 << 50)
    with pytest.raises(StartupError, match="BATON_STORE_ARENA_DIR"):
        Arena(tmp_path / "not there", MIB)
    assert {str(tmp_path), "the machine"} <= set(memory_limits(tmp_path))


def test_what_the_cgroup_does_not_allow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "memory_limit", lambda: MIB // 2)
    with pytest.raises(StartupError, match="the cgroup has only 0 MiB free"):
        Arena(tmp_path, MIB)


def test_a_writers_lock_is_held_by_its_last_holder(tmp_path: Path) -> None:
    held = WriterLock(tmp_path)
    watched = WriterLockProbe(tmp_path, held.path.name)
    held.retain()
    held.release()
    assert not watched.is_free()
    held.release()
    assert watched.is_free()
    assert not held.path.exists()
    watched.close(remove=True)


@pytest.mark.parametrize("name", ["", "x", "../baton-kv-00.writer", "baton-kv-00.writer\n"])
def test_only_writers_locks_can_be_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="writer_lock"):
        WriterLockProbe(tmp_path, name)
