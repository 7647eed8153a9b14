"""A recorded run gives the same placements again, and another placement is noticed."""

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError
from services.router.placement.service import Chain, PlacementRequest
from services.router.policy.costs import Policy
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.recording.recorded import RecordedFleet, RecordedPlacements
from services.router.recording.recorder import Recorder
from services.router.recording.records import (
    FleetTended,
    PlacementOutcome,
    Record,
    RequestPlaced,
    WorkerStale,
)
from services.router.simulation.command import main
from services.router.simulation.replay import replay
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.rates import Bandwidths

LAYOUT = b"L" * 16
KEYS = [number.to_bytes(16, "little") for number in range(40)]
ROLES = [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.COMBINED]


class Driver:
    """Calls a recorded router's objects at random, as a cluster might."""

    def __init__(self, seed: int, steps: int) -> None:
        self.records: list[Record] = []
        self._draw = random.Random(seed)
        self._fleet = RecordedFleet(
            "r/1", Policy(max_queue_seconds=20.0), Bandwidths(), 2.0, self.records.append
        )
        self._placements = RecordedPlacements(
            self._fleet, Policy(max_queue_seconds=20.0), self.records.append
        )
        self._tickets: list[tuple[int, str]] = []
        self._now = 100.0
        self._fleet.set_layouts([ModelLayout("m", LAYOUT, 16, 65_536)])
        for number in range(len(ROLES)):
            self._join(number)
        actions = [
            *[self._place] * 8,
            *[self._report] * 6,
            *[self._blocks] * 4,
            *[self._return] * 3,
            self._tend,
            self._leave,
            self._stale,
            self._end_session,
        ]
        for _ in range(steps):
            self._now += self._draw.choice((0.0, 0.01, 0.3))
            self._draw.choice(actions)()

    def _join(self, number: int) -> None:
        store = f"s{number % 2}"
        self._fleet.put(InstanceState(store, Role.KVSTORE, address="h:1"))
        self._fleet.put(
            InstanceState(
                f"w{number}",
                ROLES[number],
                model="m",
                layout_id=LAYOUT,
                store_id=store,
                adapters=frozenset({("a", b"d")}),
            )
        )

    def _leave(self) -> None:
        number = self._draw.randrange(len(ROLES))
        self._fleet.remove(self._draw.choice((f"w{number}", f"s{number % 2}")))
        self._join(number)

    def _report(self) -> None:
        worker = f"w{self._draw.randrange(len(ROLES))}"
        known = [ticket for _, ticket in self._tickets if self._draw.random() < 0.7]
        self._fleet.apply_report(
            LoadReport(
                worker,
                running=self._draw.randrange(20),
                pending_prompt_tokens=self._draw.randrange(30_000),
                free_pages=self._draw.randrange(200),
                total_pages=200,
                prefill_tokens_per_second=self._draw.choice((0.0, 900.0, 1_100.0)),
                tickets=known,
            ),
            self._now,
        )

    def _blocks(self) -> None:
        keys = set(self._draw.sample(KEYS, self._draw.randrange(1, 40)))
        holder, tier = self._draw.choice(
            (("w1", ENGINE), ("w3", ENGINE), ("s0", DRAM), ("s1", DRAM))
        )
        index = self._fleet.index
        if self._draw.random() < 0.7:
            index.add_blocks(holder, tier, keys)
        else:
            index.remove_blocks(holder, tier, iter(keys))

    def _place(self) -> None:
        session = self._draw.randrange(3)
        keys = b"".join(KEYS[: self._draw.randrange(40)])
        request = PlacementRequest(
            "m",
            self._draw.choice((100, 640, 9_000)),
            64,
            [Chain(LAYOUT, keys)],
            excluded=frozenset(self._draw.sample(("w2", "w3"), self._draw.randrange(3))),
            adapter=self._draw.choice((None, ("a", b"d"))),
            seed=self._draw.randrange(1 << 32),
        )
        with contextlib.suppress(BatonError):
            self._tickets.append(
                (session, self._placements.place(request, session, self._now).ticket)
            )

    def _return(self) -> None:
        if self._tickets:
            session, ticket = self._tickets.pop(self._draw.randrange(len(self._tickets)))
            self._placements.return_tickets(session, (ticket,))

    def _tend(self) -> None:
        self._fleet.tend(self._now)

    def _stale(self) -> None:
        self._fleet.mark_stale(f"w{self._draw.randrange(len(ROLES))}")

    def _end_session(self) -> None:
        self._placements.end_session(self._draw.randrange(3))


@given(st.integers(0, 1 << 32))
def test_a_replay_places_every_request_alike(seed: int) -> None:
    records = Driver(seed, 60).records
    placed = sum(isinstance(record, RequestPlaced) for record in records)
    replayed = replay(records)
    assert replayed.difference is None
    assert (replayed.records, replayed.placements) == (len(records), placed)


def test_workers_that_fell_silent_are_recorded_once() -> None:
    records: list[Record] = []
    fleet = RecordedFleet("r/1", Policy(), Bandwidths(), 2.0, records.append)
    fleet.put(InstanceState("w0", Role.COMBINED, model="m", layout_id=LAYOUT))
    fleet.apply_report(LoadReport("w0"), 0.0)
    for now in (0.0, 1.5, 3.0):
        tended = fleet.tend(now)
    assert tended.silent == ("w0",)
    fleet.mark_stale("w0")
    kinds = [type(record) for record in records]
    assert (kinds.count(WorkerStale), kinds.count(FleetTended)) == (1, 3)


def recording(directory: Path, records: list[Record]) -> Path:
    recorder = Recorder(directory / "r-1", 1 << 20)
    for record in records:
        recorder.write(record)
    recorder.flush()
    return directory / "r-1"


def test_the_command_replays_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = Driver(7, 300).records
    assert main(["--replay", str(recording(tmp_path / "same", records))]) == 0
    placements = sum(isinstance(record, RequestPlaced) for record in records)
    assert capsys.readouterr().out == (
        f"{placements} placements of {len(records)} records are identical.\n"
    )

    at, changed = [
        (at, record)
        for at, record in enumerate(records)
        if isinstance(record, RequestPlaced) and record.outcome.decode == "w2"
    ][3]
    other = PlacementOutcome(changed.outcome.ticket, "", "w9")
    records[at] = RequestPlaced(changed.request, changed.session, changed.now, other)
    assert main(["--replay", str(recording(tmp_path / "other", records))]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(f"record {at + 1}, is another one.")
    assert said[1] == f"recorded: ticket {other.ticket} decode w9"
    assert said[2].startswith(f"replayed: ticket {other.ticket}")
    assert said[2].endswith("decode w2")


def test_a_trace_or_a_recording_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["trace", "--replay", "recording"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
        assert "name a TRACE or a recording to --replay, one of them" in capsys.readouterr().err
