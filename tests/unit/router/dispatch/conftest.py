"""A router's dispatcher on a clock that tests turn, with workers that say what they compute."""

from collections.abc import Callable
from typing import Any

import pytest

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from services.router.admission.waiting import QueueSettings
from services.router.api.dispatcher import QueryDispatcher
from services.router.policy.costs import Policy
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable
from tests.support.doubles.asker import Asker
from tests.support.loops.manual import ManualLoop

LAYOUT = b"L" * 16
RATE = 1_000
"""Prompt tokens per second of each worker."""


class World:
    """A dispatcher with sessions, and workers of 1,000 tokens a second that a test reports for."""

    def __init__(self, workers: int = 1, **settings: Any) -> None:
        self.loop: Any = ManualLoop()
        self.fleet = Fleet(PrefixIndex(), TicketTable("r"))
        self.fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=1000)])
        self.names = [f"w{number}" for number in range(workers)]
        for name in self.names:
            self.fleet.put(InstanceState(name, Role.COMBINED, model="m", layout_id=LAYOUT))
        self.dispatcher = QueryDispatcher(
            PlacementService(self.fleet, Policy()),
            QueueSettings(**settings),
            clock=self.loop.time,
            loop=self.loop,
        )
        self.sessions: dict[int, Asker] = {}
        self.asked = 0
        for name in self.names:
            self.report(name)

    def session(self, number: int = 1) -> Asker:
        if number not in self.sessions:
            self.sessions[number] = Asker(self.dispatcher, number)
        return self.sessions[number]

    def ask(self, tokens: int = 1_000, *, session: int = 1, **fields: Any) -> int:
        """Ask; return the query's correlation id."""
        self.asked += 1
        query = router_pb2.PlaceQuery(
            correlation_id=self.asked, prompt_tokens=tokens, max_tokens=10, n=1
        )
        query.context.model = "m"
        query.context.request_id = f"r{self.asked}"
        query.MergeFrom(router_pb2.PlaceQuery(**fields))
        self.session(session).ask(query)
        return self.asked

    def cancel(self, correlation_id: int, session: int = 1) -> None:
        self.dispatcher.cancel(self.session(session).waiting.pop(correlation_id))

    def end_session(self, number: int) -> None:
        del self.sessions[number]
        self.dispatcher.end_session(number)

    def report(self, name: str = "w0", pending: int = 0, tickets: Any = ()) -> None:
        """Let a worker say what it has to compute, and take its tickets as known."""
        report = LoadReport(
            name,
            pending_prompt_tokens=pending,
            free_pages=100_000,
            total_pages=100_000,
            prefill_tokens_per_second=RATE,
            decode_step_seconds=0.01,
            tickets=tickets,
        )
        self.fleet.apply_report(report, self.loop.time())
        self.dispatcher.wake()

    def done(self, *correlation_ids: int, session: int = 1, used: Any = ()) -> None:
        """Return the tickets of placements."""
        placed = self.placed(session)
        tickets = [placed[one] for one in correlation_ids]
        self.dispatcher.return_tickets(session, tickets, (), dict(used))
        self.turn()

    def turn(self, seconds: float = 0.01) -> None:
        self.loop.advance(seconds)

    def placed(self, session: int = 1) -> dict[int, str]:
        """Tickets by correlation id, in the order of the placements."""
        return {
            one.placement.correlation_id: one.placement.ticket
            for one in self.session(session).sent
            if one.HasField("placement")
        }

    def failed(self, session: int = 1) -> dict[int, BatonError]:
        return {
            one.failed.correlation_id: BatonError.from_status(one.failed.status)
            for one in self.session(session).sent
            if one.HasField("failed")
        }

    def queued(self, session: int = 1) -> dict[int, int]:
        """Queries that were said to wait, with how many waited before."""
        return {
            one.queued.correlation_id: one.queued.ahead
            for one in self.session(session).sent
            if one.HasField("queued")
        }


@pytest.fixture
def made() -> Callable[..., World]:
    return World
