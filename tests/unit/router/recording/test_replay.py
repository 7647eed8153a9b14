"""A recorded run gives the same placements again, and another placement is noticed."""

import contextlib
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from services.router.admission.controller import AdmittedRequest, TicketUsage
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.waiting import QueueSettings, WaitingRequest
from services.router.policy.costs import Policy
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.recording.recorded import RecordedFleet
from services.router.recording.recorded_admission import RecordedAdmission
from services.router.recording.recorder import Recorder
from services.router.recording.records import (
    AdmissionAdvanced,
    AdmissionDrained,
    FleetTended,
    Record,
    RecordedAnswer,
    RequestRefused,
    RequestSubmitted,
    WorkerStale,
)
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.rates import Bandwidths
from simulator.command import main
from simulator.replay import Difference, replay

LAYOUT = b"L" * 16
KEYS = [number.to_bytes(16, "little") for number in range(40)]
ROLES = [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.COMBINED]


def answers(records: list[Record]) -> list[RecordedAnswer]:
    return [one for record in records for one in getattr(record, "answers", [])]


POLICIES = (
    AdmissionPolicy({1: ClassAdmission(ceiling=0.3, waits=True), 3: ClassAdmission(floor=0.5)}),
    AdmissionPolicy(
        {2: ClassAdmission(max_running=1, deadline=8.0, max_wait=5.0, itl_target=0.01)}
    ),
)
SETTINGS = QueueSettings(gate=8.0, window=4, refresh=0.2, max_tenant=5, max_total=7)
POLICY = Policy(max_queue_seconds=20.0)


class Driver:
    """Calls a recorded router's objects at random, as a cluster and its frontends might."""

    def __init__(self, seed: int, steps: int) -> None:
        self.records: list[Record] = []
        self._draw = random.Random(seed)
        write = self.records.append
        self._fleet = RecordedFleet("r/1", POLICY, Bandwidths(), 2.0, write)
        self._admission = RecordedAdmission(
            write, PlacementService(self._fleet, POLICY), self._answer, SETTINGS
        )
        self._tickets: list[tuple[int, str]] = []
        self._now = 100.0
        self._fleet.set_layouts([ModelLayout("m", LAYOUT, 16, 65_536)])
        for number in range(len(ROLES)):
            self._join(number)
        actions = [
            *[self._submit] * 8,
            *[self._report] * 6,
            *[self._blocks] * 4,
            *[self._advance] * 4,
            *[self._return] * 3,
            self._tend,
            self._leave,
            self._stale,
            self._end_session,
            self._cancel,
            self._refuse,
            self._set_classes,
        ]
        for _ in range(steps):
            self._now += self._draw.choice((0.0, 0.01, 0.3))
            self._draw.choice(actions)()
        if self._draw.random() < 0.5:
            self._admission.drain(BatonError(Reason.DRAINING, "this router is stopping"))
            self._submit()

    def _answer(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        if isinstance(outcome, AdmittedRequest):
            self._tickets.append((waiting.session, outcome.placed.ticket))

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

    def _submit(self) -> None:
        draw = self._draw
        keys = b"".join(KEYS[: draw.randrange(40)])
        request = PlacementRequest(
            "m",
            draw.choice((100, 640, 9_000)),
            64,
            [Chain(LAYOUT, keys)],
            excluded=frozenset(draw.sample(("w2", "w3"), draw.randrange(3))),
            adapter=draw.choice((None, ("a", b"d"))),
            tenant=draw.choice("abc"),
            seed=draw.randrange(1 << 32),
        )
        priority_class = draw.randrange(1, 4)
        waiting = WaitingRequest(
            self._admission.next_number(),
            request,
            draw.randrange(3),
            self._now - draw.choice((0.0, 3.0)),
            (draw.randrange(2), 3 - priority_class),
            priority_class,
            draw.choice((1.0, 4.0)),
            self._now + draw.choice((0.5, 30.0, math.inf, math.inf)),
            output_tokens=draw.randrange(100),
        )
        with contextlib.suppress(BatonError):
            admitted = self._admission.submit(waiting, self._now, may_wait=draw.random() < 0.9)
            if admitted is not None:
                self._answer(waiting, admitted)

    def _advance(self) -> None:
        self._admission.advance(self._now)

    def _cancel(self) -> None:
        self._admission.cancel(self._draw.randrange(1, 40))

    def _refuse(self) -> None:
        error = BatonError(Reason.SLOW_CONSUMER, "the answers are not read")
        self._admission.refuse(self._draw.randrange(1, 40), error)

    def _set_classes(self) -> None:
        self._admission.policy = self._draw.choice(POLICIES)

    def _return(self) -> None:
        if self._tickets:
            session, ticket = self._tickets.pop(self._draw.randrange(len(self._tickets)))
            used = TicketUsage(50, 7, self._draw.expovariate(1.0))
            usage = {ticket: used} if self._draw.random() < 0.5 else {}
            self._admission.return_tickets(session, (ticket,), usage)

    def _tend(self) -> None:
        self._fleet.tend(self._now)

    def _stale(self) -> None:
        self._fleet.mark_stale(f"w{self._draw.randrange(len(ROLES))}")

    def _end_session(self) -> None:
        self._admission.end_session(self._draw.randrange(3))


@given(st.integers(0, 1 << 32))
def test_a_replay_answers_every_request_alike(seed: int) -> None:
    records = Driver(seed, 80).records
    replayed = replay(records)
    assert replayed.difference is None
    assert (replayed.records, replayed.answers) == (len(records), len(answers(records)))


def test_the_router_that_is_recorded_decides_in_all_ways() -> None:
    records = [record for seed in range(20) for record in Driver(seed, 300).records]
    submitted = [record for record in records if isinstance(record, RequestSubmitted)]
    assert any(len(record.answers) > 1 for record in submitted)  # one gave way
    for later in (AdmissionAdvanced, RequestRefused, AdmissionDrained):
        assert any(record.answers for record in records if isinstance(record, later))
    last = [record.answers[-1] for record in submitted]
    assert {(bool(one.ticket), bool(one.prefill), bool(one.refused)) for one in last} == {
        (True, True, False),
        (True, False, False),
        (False, False, False),
        (False, False, True),
    }
    advanced = [
        one for record in records if isinstance(record, AdmissionAdvanced) for one in record.answers
    ]
    assert {bool(one.refused) for one in advanced} == {True, False}


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
    assert capsys.readouterr().out == (
        f"{len(answers(records))} answers of {len(records)} records are identical.\n"
    )

    at, changed = next(
        (at, record)
        for at, record in enumerate(records)
        if isinstance(record, RequestSubmitted) and record.answers[-1].decode == "w2"
    )
    was = changed.answers[-1]
    other = [*changed.answers[:-1], was._replace(prefill="", decode="w9")]
    records[at] = RequestSubmitted(changed.waiting, changed.now, changed.may_wait, other)
    assert main(["--replay", str(recording(tmp_path / "other", records))]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(f"record {at + 1}, is another one.")
    assert said[1] == f"recorded: request {was.number} ticket {was.ticket} decode w9"
    assert said[2].startswith(f"replayed: request {was.number} ticket {was.ticket}")
    assert said[2].endswith("decode w2")


def test_an_answer_more_or_less_is_noticed() -> None:
    records = Driver(5, 400).records
    at, changed = [
        (at, record)
        for at, record in enumerate(records)
        if isinstance(record, AdmissionAdvanced) and record.answers
    ][2]
    records[at] = AdmissionAdvanced(changed.now, [])
    replayed = replay(records)
    assert replayed.difference == Difference(None, changed.answers[0])
    assert replayed.records == at + 1


def test_a_trace_or_a_recording_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["trace", "--replay", "recording"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
        assert "name a TRACE or a recording to --replay, one of them" in capsys.readouterr().err
