"""The history of a process writes off the loop, and drops instead of waiting."""

import asyncio
import os
from pathlib import Path

import pytest

from baton.history import history as module
from baton.history.history import MAX_WAITING, History
from baton.history.kept import KeptKind, KeptRequest
from baton.settings import StartupError
from baton.telemetry.scope import TelemetryScope
from tests.support.usage.records import begun, ended
from tests.support.wait import eventually

MIB = 1024 * 1024
DAY = 86_400.0


def kept(request_id: str) -> KeptRequest:
    return KeptRequest(kind=KeptKind.FAILED, record=ended(begun(request_id)))


async def test_what_is_kept_outlives_the_process(tmp_path: Path) -> None:
    async with History(tmp_path / "history", MIB, DAY) as history:
        for number in range(50):
            history.keep(kept(f"r{number}"))
    async with History(tmp_path / "history", MIB, DAY) as history:
        for number in (0, 49):
            found = await history.find(f"r{number}")
            assert [one.record.request_id for one in found.kept] == [f"r{number}"]


async def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StartupError, match=r"history\.path \(BATON_HISTORY_PATH\)"):
        await History(file, MIB, DAY).__aenter__()


async def test_a_slow_disk_costs_requests_not_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    line_of = module.line_of

    def hangs(one: KeptRequest) -> bytes:
        if one.record.request_id == "first":
            os.read(read, 1)
        return line_of(one)

    monkeypatch.setattr(module, "line_of", hangs)
    scope = TelemetryScope()
    with scope.entered():
        async with History(tmp_path, 64 * MIB, DAY) as history:
            history.keep(kept("first"))
            for _ in range(MAX_WAITING + 7):
                history.keep(kept("r"))
            os.write(write, b"x")
            assert scope.registry.get_sample_value("baton_history_dropped_total") == 7
    async with History(tmp_path, 64 * MIB, DAY) as history:
        assert len((await history.find("r")).kept) == MAX_WAITING
    os.close(read)
    os.close(write)


async def test_a_disk_that_rejects_is_logged_once_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(module.log, "error", lambda event, **_: logged.append(event))
    async with History(tmp_path / "history", MIB, DAY) as history:
        (tmp_path / "history").rename(tmp_path / "away")
        for _ in range(3):
            history.keep(kept("lost"))
            await asyncio.sleep(0.01)
        await eventually(lambda: logged)
        (tmp_path / "history").mkdir()
        history.keep(kept("after"))

        async def found() -> bool:
            return bool((await history.find("after")).kept)

        while not await found():
            await asyncio.sleep(0.01)
    assert logged == ["router.history.not_written"]
