"""Workers of models that take turns: started and drained as requests come."""

import asyncio
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import pytest
from rich.console import Console

from baton.cli.cluster.local.on_demand.models import OnDemandModels
from baton.cli.cluster.local.on_demand.room import OnDemandRoom
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.shared.errors import CommandError
from baton.cluster.etcd.client import EtcdError
from baton.on_demand.state import ModelState, ModelTurn
from baton.on_demand.turns import ModelUse
from tests.support.clock import DEADLINE_SECONDS

WORKERS = {"a": ["decode-0"], "b": ["decode-1", "prefill-0"], "c": ["decode-2"]}


class Processes:
    """A supervisor whose processes start and end at once, but for `broken` ones."""

    def __init__(self, running: Iterable[str]) -> None:
        self.running = set(running)
        self.history: list[str] = []
        self.broken: set[str] = set()
        self.given_up: set[str] = set()
        self.changed = asyncio.Event()

    def add(self, name: str) -> bool:
        self.running.add(name)
        self.history.append(f"+{name}")
        return True

    def remove(self, name: str) -> None:
        self.running.remove(name)
        self.history.append(f"-{name}")

    async def wait_added(self, names: Iterable[str]) -> None:
        await asyncio.sleep(0)
        if bad := self.broken & set(names):
            raise CommandError(f"{bad.pop()} does not start.", 1)
        self.changed.set()

    async def wait_removed(self, names: Iterable[str]) -> None:
        await asyncio.sleep(0)

    def is_given_up(self, name: str) -> bool:
        return name in self.given_up


class Uses:
    """How models are used."""

    def __init__(self) -> None:
        self.now: dict[str, ModelUse] = {}
        self.up: list[str] = []

    async def read(self, workers: Mapping[str, Sequence[str]]) -> dict[str, ModelUse]:
        self.up = [model for model, ids in workers.items() if ids]
        return dict(self.now)


class Records:
    """Takes the states that are to be written."""

    def __init__(self) -> None:
        self.turns: Mapping[str, ModelTurn] = {}
        self.left = False

    def set(self, turns: Mapping[str, ModelTurn]) -> None:
        self.turns = turns

    async def keep_written(self) -> NoReturn:
        while True:
            await asyncio.sleep(3600)

    async def leave(self) -> None:
        self.left = True


class Turns:
    """Three models with room for one, of which the last runs."""

    def __init__(self, room: int = 1) -> None:
        self.said = io.StringIO()
        self.renewed: list[str] = []
        self.uses = Uses()
        self.records = Records()
        self.processes = Processes(one for ids in list(WORKERS.values())[-room:] for one in ids)
        self.models = OnDemandModels(
            self.processes,
            WORKERS,
            OnDemandRoom(room, 0.0),
            self.uses,  # type: ignore[arg-type]
            self.records,  # type: ignore[arg-type]
            lambda _: True,
            self._renew,
            Reporter(Console(file=self.said, width=200)),
        )

    async def _renew(self, model: str) -> None:
        self.renewed.append(model)
        if model == "a":
            raise EtcdError("away")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide each millisecond."""
    monkeypatch.setattr("baton.cli.cluster.local.on_demand.models.PERIOD_SECONDS", 0.001)


@pytest.mark.parametrize(
    ("room", "history"),
    [
        (1, ["-decode-2", "+decode-1", "+prefill-0", "-decode-1", "-prefill-0", "+decode-0"]),
        (2, ["-decode-2", "+decode-0"]),
    ],
)
async def test_each_model_is_started_once(room: int, history: list[str]) -> None:
    turns = Turns(room)
    async with turns.models:
        await turns.models.start()
        assert turns.processes.history == history
    assert turns.models.running == [one for name in "ab"[:room] for one in WORKERS[name]]


async def test_a_model_that_does_not_start_ends_the_start() -> None:
    turns = Turns()
    turns.processes.broken = {"prefill-0"}
    with pytest.raises(CommandError, match="prefill-0 does not start"):
        await turns.models.start()


async def test_a_request_starts_its_model_and_drains_the_other(
    quick: None,
) -> None:
    turns = Turns()
    turns.uses.now = {"b": ModelUse(0.0)}
    async with turns.models:
        await turns.models.start()
        turns.processes.history.clear()
        turns.processes.changed.clear()
        await asyncio.wait_for(turns.processes.changed.wait(), 20)
    assert turns.records.left
    assert turns.renewed == ["a", "b", "c"], "all, although etcd was away once"
    assert turns.records.turns["b"].state is ModelState.READY
    assert turns.processes.history == ["-decode-0", "+decode-1", "+prefill-0"]
    assert "Draining decode-0 of a." in turns.said.getvalue()
    assert "Starting decode-1, prefill-0 of b." in turns.said.getvalue()


async def test_another_has_its_turn_if_one_does_not_start(quick: None) -> None:
    turns = Turns()
    turns.uses.now = {"b": ModelUse(0.0), "c": ModelUse(1.0)}
    async with turns.models:
        await turns.models.start()
        turns.processes.broken = {"decode-1"}
        turns.processes.changed.clear()
        await asyncio.wait_for(turns.processes.changed.wait(), 20)
    assert "decode-2" in turns.processes.running
    assert "Model b does not start: decode-1 does not start." in turns.said.getvalue()


async def test_a_model_that_is_added_has_a_turn(quick: None) -> None:
    turns = Turns()
    async with turns.models:
        await turns.models.start()
        turns.uses.now = {"a": ModelUse(running=True)}
        added = asyncio.create_task(turns.models.add("d", ["decode-9"]))
        await asyncio.sleep(0.02)
        turns.uses.now = {}
        await asyncio.wait_for(added, DEADLINE_SECONDS)
        assert turns.processes.running == {"decode-9"}
        turns.uses.now = {"d": ModelUse(running=True)}
        turns.models.leave("d")
        assert turns.records.turns["d"].state is ModelState.LEAVING
        turns.models.remove("d")
        assert sorted(turns.records.turns) == ["a", "b", "c"]


async def test_a_model_that_is_added_and_does_not_start_is_forgotten(quick: None) -> None:
    turns = Turns()
    async with turns.models:
        await turns.models.start()
        turns.processes.broken = {"decode-9"}
        with pytest.raises(CommandError, match="decode-9 does not start"):
            await asyncio.wait_for(turns.models.add("d", ["decode-9"]), 20)
        assert "decode-9" not in turns.processes.running
        assert sorted(turns.records.turns) == ["a", "b", "c"]


async def test_a_turn_does_not_end_while_workers_change(quick: None) -> None:
    turns = Turns()
    turns.uses.now = {"b": ModelUse(0.0)}
    async with turns.models:
        with turns.models.changing("a"):
            await turns.models.start()
            turns.processes.history.clear()
            await asyncio.sleep(0.02)
            assert "-decode-0" not in turns.processes.history
            turns.models.set_workers("a", ["decode-5"])
            turns.processes.running.add("decode-5")
        turns.processes.changed.clear()
        await asyncio.wait_for(turns.processes.changed.wait(), 20)
    assert turns.processes.history[:2] == ["-decode-5", "+decode-1"]


async def test_what_begins_or_ends_its_turn_is_not_changed() -> None:
    turns = Turns()
    turns.models.leave("c")
    with pytest.raises(CommandError, match="The turn of model 'c' begins or ends"):
        turns.models.leave("c")
    assert not turns.models.require_settled("a")


async def test_a_turn_whose_workers_die_again_and_again_ends(quick: None) -> None:
    turns = Turns()
    async with turns.models:
        await turns.models.start()
        turns.processes.given_up = {"decode-0"}
        turns.uses.now = {"b": ModelUse(0.0)}
        turns.processes.changed.clear()
        await asyncio.wait_for(turns.processes.changed.wait(), 20)
    assert turns.processes.history[-3:] == ["-decode-0", "+decode-1", "+prefill-0"]
