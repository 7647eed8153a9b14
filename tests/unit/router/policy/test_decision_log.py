"""The latest decisions can be explained, as they were made, and memory for them is bounded."""

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.kv.layout import GroupKind, KvGroup
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.explain import Explainer
from services.router.policy.decision_log import AdmissionTurn, DecisionLog, DecisionRecord
from services.router.policy.placement_service import (
    PlacementPlan,
    PlacementRequest,
    PlacementService,
)
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.state.fleet import Fleet
from services.router.state.instances import LoadReport
from tests.support.doubles.asker import Asker
from tests.support.loops.manual import ManualLoop
from tests.unit.router.policy.test_placer import CARD, CHAIN, ask, make_fleet

NOW = 50.0


class Router:
    """Placements of one router, explained at a time of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.placements = PlacementService(fleet)
        self.decisions = DecisionLog()
        self._now = 0.0
        loop: Any = ManualLoop()
        dispatcher = QueryDispatcher(
            self.placements, decisions=self.decisions, clock=lambda: self._now, loop=loop
        )
        self._asker = Asker(dispatcher)
        self._explainer = Explainer(
            self.placements, self.decisions, clock=lambda: NOW, wall_clock=lambda: 1000.0 + NOW
        )

    def place(self, query: router_pb2.PlaceQuery, now: float = 1.0) -> router_pb2.Placement:
        self._now = now
        return self._asker.place(query)

    def explain(
        self, request_id: str = "", query: router_pb2.PlaceQuery | None = None
    ) -> list[router_pb2.Explanation]:
        asked = router_pb2.ExplainRequest(request_id=request_id, query=query)
        return list(self._explainer.explain(asked).explanations)


def named(request_id: str) -> router_pb2.PlaceQuery:
    query = ask()
    query.context.request_id, query.context.tenant = request_id, "acme"
    return query


def test_a_decision_is_explained_as_it_was_made_whatever_became_of_the_fleet() -> None:
    router = Router(make_fleet())
    router.fleet.index.add_blocks("d1", ENGINE, CHAIN[:32])
    router.fleet.index.add_blocks("store", DRAM, CHAIN[:48])
    before = router.explain(query=named("a"))[0]
    placed = router.place(named("a"), now=2.0)
    (first,) = router.explain("a")
    assert list(first.candidates) == list(before.candidates)
    assert (first.tenant, first.prompt_tokens, first.decided_seconds) == ("acme", 1030, 1002.0)
    assert first.reason == before.reason == placed.prediction.reason
    chosen = [one for one in first.candidates if one.chosen]
    assert [(one.prefill_worker, one.decode_worker) for one in chosen] == [
        (placed.prefill.instance_id, placed.decode.instance_id)
    ]
    router.fleet.index.remove_blocks("store", DRAM, CHAIN)
    router.fleet.index.remove_blocks("d1", ENGINE, CHAIN)
    router.fleet.apply_report(
        LoadReport("d2", "1", 9, 9, 90_000, 0, 1000, prefill_tokens_per_second=1.0), 3.0
    )
    router.fleet.remove("d1")
    (again,) = router.explain("a")
    assert again == first


def test_of_kv_in_groups_it_is_told_which_prefix_can_be_continued() -> None:
    groups = (KvGroup(GroupKind.FULL, 16), KvGroup(GroupKind.WINDOW, 16, 64))
    fleet = make_fleet()
    fleet.set_layouts([replace(CARD, groups=groups)])
    fleet.index.add_blocks("store", DRAM, CHAIN[:48])
    fleet.index.add_blocks("store", DRAM, CHAIN[28:32], 1)
    fleet.index.add_blocks("d1", ENGINE, CHAIN[:16])
    fleet.index.add_blocks("d1", ENGINE, CHAIN[:15], 1)
    router = Router(fleet)
    placed = router.place(named("a"))
    assert placed.prediction.cached_tokens == 32 * 16
    (told,) = router.explain("a")
    assert [(one.holder, one.tier, one.cut_tokens) for one in told.cuts] == [
        ("store", DRAM, 32 * 16),
        ("d1", ENGINE, 15 * 16),
    ]
    lacking = [(one.kind, one.needed_blocks, one.missing_blocks) for one in told.cuts[0].groups]
    assert told.cuts[0].prefix_tokens == 48 * 16
    assert lacking == [("full", 48, 0), ("window", 4, 4)]
    fleet.index.remove_holder("d1")
    assert not router.explain("a")[0].cuts


def test_each_decision_of_a_request_is_explained_the_latest_first() -> None:
    router = Router(make_fleet())
    for at in (1.0, 2.0):
        router.place(named("a"), now=at)
        router.place(named("b"), now=at)
    assert [one.decided_seconds for one in router.explain("a")] == [1002.0, 1001.0]
    assert router.explain("c") == []


def test_a_refusal_is_explained_and_nothing_is_placed_for_an_explanation() -> None:
    router = Router(make_fleet())
    query = named("a")
    query.excluded_instances.extend(["d1", "d2"])
    with pytest.raises(BatonError):
        router.place(query)
    (refused,) = router.explain("a")
    assert BatonError.from_status(refused.refusal).reason is Reason.NO_WORKER
    assert not refused.candidates
    (preview,) = router.explain(query=query)
    assert BatonError.from_status(preview.refusal).reason is Reason.NO_WORKER
    assert {one.exclusion for one in preview.candidates if one.decode_worker} == {"excluded"}
    router.explain(query=named("b"))
    assert (len(router.fleet.tickets), len(router.decisions)) == (0, 1)


@pytest.mark.parametrize("request_id", ["", None])
def test_what_is_neither_named_nor_described_is_refused(request_id: str | None) -> None:
    router = Router(make_fleet())
    with pytest.raises(BatonError) as refused:
        router._explainer.explain(router_pb2.ExplainRequest(request_id=request_id))
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, "subject")


def test_a_turn_is_told_as_it_was() -> None:
    router = Router(make_fleet())
    turn = AdmissionTurn(1, 2, 3000.0, 4.5, ahead=5, waiting=6, weight=7.0)
    request = PlacementRequest("m", 10, 10)
    router.decisions.add(DecisionRecord("a", request, 1.0, waited=2.5, turn=turn))
    (told,) = router.explain("a")
    order = told.turn.order
    assert (order.tier, order.priority_class, order.tenant_lead, order.key) == (1, 2, 3000.0, 4.5)
    assert (told.turn.ahead, told.turn.waiting, told.turn.weight) == (5, 6, 7.0)
    assert told.waited_seconds == 2.5


class Candidates(PlacementPlan):
    """A plan of which only the number of candidates counts."""

    @property
    def candidates(self) -> int:
        return self.request.prompt_tokens


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=40))
def test_the_latest_decisions_are_kept_as_long_as_there_is_room(sizes: list[int | None]) -> None:
    log, naive = DecisionLog(limit=8, max_candidates=20), deque[int]()
    for number, size in enumerate(sizes):
        request = PlacementRequest("m", size or 0, 1)
        plan = None if size is None else Candidates(request, None, None)  # type: ignore[arg-type]
        log.add(DecisionRecord(f"r{number}", request, 0.0, plan=plan))
        naive.append(number)
        while len(naive) > 8 or (len(naive) > 1 and sum(sizes[at] or 0 for at in naive) > 20):
            naive.popleft()
    assert len(log) == len(naive)
    assert [bool(log.of(f"r{number}")) for number in range(len(sizes))] == [
        number in naive for number in range(len(sizes))
    ]
