"""The workers and stores that placements choose from, always up to date.

Plain state without I/O or a clock: discovery says which instances live, load streams how busy they
are, and tickets what is in flight to them. A `Worker` is rebuilt only when something about it
changed.
"""

import math
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from baton.kv.cuts import CutRules
from services.router.prefix_index.index import PrefixIndex
from services.router.prefix_index.match import Match
from services.router.state.backlog import Backlog
from services.router.state.class_views import ClassView, lower_load
from services.router.state.columns import WorkerColumns
from services.router.state.instances import LOWEST, InstanceState, LoadReport, ModelLayout, Role
from services.router.state.rates import (
    DEFAULT_BANDWIDTHS,
    Bandwidths,
    LearnedRates,
    RateEstimator,
)
from services.router.state.room import room
from services.router.state.stream_targets import StreamPlacement
from services.router.state.tickets import InFlightLoad, TicketTable
from services.router.state.worker import RegisteredWorker, Worker

SILENCE_SECONDS = 2.0
_MAX_NAMES = 1024
_SWEEP_KEYS = 4096
"""Most blocks of departed holders removed per call: a few milliseconds."""


class Tended(NamedTuple):
    """The result of `Fleet.tend`."""

    expired: frozenset[str]
    """Workers with expired load that no report acknowledged."""
    silent: tuple[str, ...]
    """Workers that became stale because their reports stopped."""
    more: bool
    """Whether blocks of departed holders are left to remove: call it again soon."""


class Fleet:
    """The state that placements depend on. Owned by one event loop.

    Args:
        index: which holder has which blocks.
        tickets: work in flight to workers.
        bandwidths: expected bandwidths of KV transfers before any was measured.
        silence_seconds: a worker without a report for this long is stale; and no worker is assumed
            to compute for longer without a report.
    """

    def __init__(
        self,
        index: PrefixIndex,
        tickets: TicketTable,
        bandwidths: Bandwidths = DEFAULT_BANDWIDTHS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.index = index
        self.tickets = tickets
        self._rates = RateEstimator(bandwidths)
        self._silence_seconds = silence_seconds
        self._tended_at: float | None = None
        self._instances: dict[str, InstanceState] = {}
        self._reports: dict[str, LoadReport] = {}
        self._backlogs: dict[str, Backlog] = {}
        """Backlogs of workers that have reported."""
        self._reported_at: OrderedDict[str, float] = OrderedDict()
        """Time of the last report of each worker that is not stale, the oldest first."""
        self._stale: set[str] = set()
        self._ended: dict[str, Counter[int]] = {}
        """By worker and class, sequences in its last report whose tickets were returned since."""
        self._layouts: dict[tuple[str, bytes], ModelLayout] = {}
        """By model and layout."""
        self._rules: dict[bytes, CutRules] = {}
        """By layout, of those that have groups."""
        self._by_model: dict[str, list[str]] = {}
        """Ids of workers, in order."""
        self._by_store: dict[str, set[str]] = {}
        """Ids of the workers of each store, whether or not the store is alive."""
        self._all = ClassView(LOWEST)
        self._views: dict[int, ClassView] = {LOWEST: self._all}
        """By rank of a class."""
        self._last_rank = 0
        """Rank of the lowest class of which there was any work."""
        self._registered: dict[str, RegisteredWorker] = {}
        """Cache of registrations since an instance or layout was added, removed or changed."""
        self._model_names: dict[str, None] = {}

    def put(self, instance: InstanceState) -> None:
        """Add a worker or store, or replace its record."""
        self._unlist(instance.id)
        self._instances[instance.id] = instance
        if instance.role.is_worker:
            insort(self._by_model.setdefault(instance.model, []), instance.id)
            if instance.store_id:
                self._by_store.setdefault(instance.store_id, set()).add(instance.id)
            self._remember(instance.model)
        self._invalidate(instance.id, *self._by_store.get(instance.id, ()))
        self._forget_registrations()

    def remove(self, instance_id: str) -> None:
        """Remove an instance that left the cluster, with all of its state."""
        self._unlist(instance_id)
        self._instances.pop(instance_id, None)
        self._reports.pop(instance_id, None)
        self._backlogs.pop(instance_id, None)
        self._reported_at.pop(instance_id, None)
        self._stale.discard(instance_id)
        self._ended.pop(instance_id, None)
        self._rates.remove_worker(instance_id)
        self.tickets.remove_worker(instance_id)
        self.index.remove_holder(instance_id)
        self._invalidate(instance_id, *self._by_store.get(instance_id, ()))
        self._forget_registrations()

    def set_layouts(self, layouts: Iterable[ModelLayout]) -> None:
        """Replace the models' layouts."""
        self._layouts = {(one.model, one.layout_id): one for one in layouts}
        self._rules = {
            one.layout_id: CutRules(one.groups, one.block_tokens)
            for one in self._layouts.values()
            if one.groups
        }
        for model, _ in self._layouts:
            self._remember(model)
        self._invalidate(*self._instances)
        self._forget_registrations()

    def matches(self, chains: Iterable[tuple[bytes, bytes]], tokens: int) -> dict[bytes, Match]:
        """Return which holder has what of a prompt, by layout.

        Args:
            chains: layout and packed keys of each.
            tokens: of prompt and output, of which at least one is computed.
        """
        index, rules = self.index, self._rules
        if not rules:
            return {layout_id: index.match_packed(keys) for layout_id, keys in chains}
        return {
            layout_id: (
                index.match_cuts(keys, rules[layout_id], tokens - 1)
                if layout_id in rules
                else index.match_packed(keys)
            )
            for layout_id, keys in chains
        }

    def apply_report(self, report: LoadReport, now: float) -> None:
        """Apply a worker's load report. One of an earlier incarnation is dropped.

        Args:
            report: as received.
            now: a monotonic clock, in seconds.
        """
        worker_id = report.worker_id
        instance = self._instances.get(worker_id)
        if instance is None or instance.incarnation != report.incarnation:
            return
        self._reports[worker_id] = report
        self._reported_at[worker_id] = now
        self._reported_at.move_to_end(worker_id)
        self._stale.discard(worker_id)
        self._ended.pop(worker_id, None)
        self._rates.observe(worker_id, instance.layout_id, report)
        acknowledged = self.tickets.acknowledge(worker_id, report.tickets)
        backlog, tokens = self._backlogs.get(worker_id), report.pending_prompt_tokens
        if backlog is None:
            self._backlogs[worker_id] = Backlog(tokens, now, self._silence_seconds)
        else:
            backlog.report(tokens, acknowledged.prompt_tokens, now)
        if report.classes:
            self._last_rank = max(self._last_rank, report.classes[-1].rank)
        self._invalidate(worker_id)

    def mark_stale(self, worker_id: str) -> None:
        """Use a worker only if no other is left: its load stream broke."""
        self._reported_at.pop(worker_id, None)
        self._stale.add(worker_id)
        self._invalidate(worker_id)

    def issue(
        self,
        session: int,
        now: float,
        loads: dict[str, InFlightLoad],
        placement: StreamPlacement | None = None,
        rank: int = 0,
    ) -> str:
        """Open a ticket for a placement and return its id.

        Args:
            session: the frontend's session that the ticket ends with.
            now: a monotonic clock, in seconds.
            loads: by worker.
            placement: of its streams; None: it has none.
            rank: of its class.
        """
        for worker_id in loads:
            worker = self.worker(worker_id)
            if worker is not None:
                self._backlogs[worker_id].add(worker.pending_seconds, now)
        self._last_rank = max(self._last_rank, rank)
        ticket, changed = self.tickets.issue(session, now, loads, placement, rank)
        self._invalidate(*loads, *changed)
        return ticket

    def return_tickets(self, session: int, ticket_ids: Sequence[str]) -> None:
        """End tickets of a session; unknown ones and those of other sessions are ignored.

        The sequences of these tickets in a worker's last report count as free space from now on:
        the work has ended, and the next report comes later.
        """
        tickets, ended = self.tickets, set[str]()
        for ticket_id in ticket_ids:
            for worker_id in tickets.acknowledged_by(session, ticket_id):
                sequences = self._reported_sequences(worker_id, ticket_id)
                if sequences:
                    rank = tickets.rank_of(ticket_id)
                    self._ended.setdefault(worker_id, Counter())[rank] += sequences
                    ended.add(worker_id)
        self._invalidate(*tickets.return_tickets(session, ticket_ids), *ended)

    def end_session(self, session: int) -> None:
        """End every ticket of a session."""
        self._invalidate(*self.tickets.end_session(session))

    def _reported_sequences(self, worker_id: str, ticket_id: str) -> int:
        """Return how many sequences of a ticket a worker's last report contains."""
        report = self._reports.get(worker_id)
        if report is None or not report.ticket_sequences:
            return 0
        at = bisect_left(report.tickets, ticket_id)
        if at == len(report.tickets) or report.tickets[at] != ticket_id:
            return 0
        return report.ticket_sequences[at]

    def tend(self, now: float) -> Tended:
        """Do a bounded piece of the periodic work; a router calls it twice a second.

        Removes some blocks of departed holders, expires load that no report acknowledged in time,
        and marks workers stale that have not reported for `silence_seconds`. Silence does not count
        if the router itself was suspended for that long: reports may wait to be read.

        Args:
            now: a monotonic clock, in seconds.
        """
        more = self.index.sweep(_SWEEP_KEYS)
        expired = self.tickets.expire(now)
        self._invalidate(*expired)
        silent = []
        last, self._tended_at = self._tended_at, now
        if last is not None and now - last < self._silence_seconds:
            while self._reported_at:
                worker_id, at = next(iter(self._reported_at.items()))
                if now - at < self._silence_seconds:
                    break
                self.mark_stale(worker_id)
                silent.append(worker_id)
        return Tended(frozenset(expired), tuple(silent), more)

    def workers(self, model: str) -> list[Worker]:
        """Return the workers of a model that have reported, in a stable order."""
        return self._workers_of(model, self._all)

    def registered(self, model: str) -> list[InstanceState]:
        """Return the workers of a model, whether or not they have reported, in a stable order."""
        return [self._instances[one] for one in self._by_model.get(model, ())]

    def worker(self, worker_id: str) -> Worker | None:
        """Return a worker; None: it has not reported, or its layout is not known."""
        return self._all.workers.get(worker_id) or self._build(worker_id, self._all)

    def report(self, worker_id: str) -> LoadReport | None:
        """Return the last report of a worker; None: it has not reported."""
        return self._reports.get(worker_id)

    def learned(self, worker_id: str) -> LearnedRates:
        """Return the rates that a worker has learned, without what is estimated from its peers."""
        return self._rates.learned(worker_id)

    @property
    def models(self) -> Iterable[str]:
        """Names of the models that have or had workers, or have a card."""
        return self._model_names

    def columns(self, model: str, rank: int = LOWEST) -> WorkerColumns:
        """Return the workers of a model that have reported, as up-to-date columns.

        They change when a worker reports.

        Args:
            model: the model.
            rank: of a class; work of lower classes, which gives way to it, is left out.
        """
        view = self._view(rank)
        columns = view.columns.get(model)
        changed = view.changed.pop(model, ())
        if columns is not None and changed:
            built = [view.workers.get(one) or self._build(one, view) for one in changed]
            workers = [one for one in built if one is not None]
            if not columns.update(workers):
                columns = None  # a worker's first report
        if columns is None:
            columns = view.columns[model] = WorkerColumns(self._workers_of(model, view))
        return columns

    def knows_model(self, model: str) -> bool:
        """Return whether the model has or had workers."""
        return model in self._model_names

    def all_reported(self, instance_ids: Iterable[str]) -> bool:
        """Return whether all of these are known, and the workers among them reported or stale."""
        return all(
            (known := self._instances.get(one)) is not None
            and (not known.role.is_worker or one in self._reports or one in self._stale)
            for one in instance_ids
        )

    @property
    def any_reported(self) -> bool:
        """Whether the load of a worker is known."""
        return bool(self._reports)

    def store_address(self, store_id: str) -> str | None:
        """Return a store's address; None: it is not in the cluster."""
        store = self._instances.get(store_id)
        return store.address if store is not None else None

    def role_counts(self) -> Counter[Role]:
        """Return the number of live workers and stores by role."""
        return Counter(i.role for i in self._instances.values())

    def _view(self, rank: int) -> ClassView:
        if rank >= self._last_rank:
            return self._all
        view = self._views.get(rank)
        if view is None:
            view = self._views[rank] = ClassView(rank)
        return view

    def _workers_of(self, model: str, view: ClassView) -> list[Worker]:
        built = [
            view.workers.get(worker_id) or self._build(worker_id, view)
            for worker_id in self._by_model.get(model, ())
        ]
        return [worker for worker in built if worker is not None]

    def _build(self, worker_id: str, view: ClassView) -> Worker | None:
        report = self._reports.get(worker_id)
        registered = self._registered.get(worker_id) or self._register(worker_id)
        if report is None or registered is None:
            return None
        rank, lower = view.rank, lower_load(report, view.rank)
        tickets, backlog = self.tickets.in_flight(worker_id, rank), self._backlogs[worker_id]
        # Those of lower classes take part in steps, and are avoided where there is a choice.
        running = report.running + self.tickets.in_flight(worker_id).sequences
        waiting = report.waiting - lower.waiting
        sequences = report.running - lower.running + tickets.sequences + waiting
        ended = sum(n for of, n in self._ended.get(worker_id, {}).items() if of <= rank)
        free_pages = report.free_pages + lower.pages
        room_pages = free_pages - report.reserved_pages - tickets.pages
        targets = self.tickets.stream_targets(worker_id)
        strictest = targets.strictest if targets is not None else math.inf
        worker = view.workers[worker_id] = Worker(
            registered,
            self._rates.rates(worker_id, registered.layout_id),
            running,
            waiting,
            max(0, report.pending_prompt_tokens - lower.pending_prompt_tokens)
            + tickets.prompt_tokens,
            room_pages,
            report.total_pages,
            _decode_chunk(report),
            registered.draining or report.draining,
            worker_id in self._stale,
            backlog.computed,
            backlog.at,
            backlog.until,
            strictest,
            targets is not None and strictest < math.inf and targets.cover(running),
            report.max_sequences or math.inf,
            room(report.max_running, report.max_sequences, sequences - ended, room_pages),
        )
        return worker

    def _register(self, worker_id: str) -> RegisteredWorker | None:
        """Return the registration of a worker; None: its layout is not known."""
        instance = self._instances[worker_id]
        layout = self._layouts.get((instance.model, instance.layout_id))
        if layout is None or layout.block_tokens <= 0:
            return None
        registered = self._registered[worker_id] = RegisteredWorker(
            id=worker_id,
            incarnation=instance.incarnation,
            address=instance.address,
            can_prefill=instance.role.can_prefill,
            can_decode=instance.role.can_decode,
            layout_id=instance.layout_id,
            store_id=instance.store_id if instance.store_id in self._instances else "",
            block_tokens=layout.block_tokens,
            block_bytes=layout.block_bytes,
            tokenizer_digest=instance.tokenizer_digest,
            adapters=instance.adapters,
            draining=instance.draining,
        )
        return registered

    def _unlist(self, instance_id: str) -> None:
        """Remove a worker from the lists of its model and its store."""
        known = self._instances.get(instance_id)
        if known is None or not known.role.is_worker:
            return
        ids = self._by_model[known.model]
        del ids[bisect_left(ids, instance_id)]
        if not ids:
            del self._by_model[known.model]
        if known.store_id:
            beside = self._by_store[known.store_id]
            beside.discard(instance_id)
            if not beside:
                del self._by_store[known.store_id]

    def _forget_registrations(self) -> None:
        self._registered.clear()
        for view in self._views.values():
            view.columns.clear()

    def _invalidate(self, *worker_ids: str) -> None:
        for worker_id in worker_ids:
            instance = self._instances.get(worker_id)
            if instance is None:
                for view in self._views.values():
                    view.workers.pop(worker_id, None)
            elif instance.role.is_worker:
                for view in self._views.values():
                    view.invalidate(worker_id, instance.model)

    def _remember(self, model: str) -> None:
        """Keep a model's name once its last worker left; beyond the limit drop the oldest."""
        if model and model not in self._model_names:
            if len(self._model_names) >= _MAX_NAMES:
                del self._model_names[next(iter(self._model_names))]
            self._model_names[model] = None


def _decode_chunk(report: LoadReport) -> int:
    """Return the prompt tokens that a step computes next to streams: never more than without."""
    chunk, beside = report.chunk_tokens, report.decode_chunk_tokens
    return min(beside, chunk) if beside and chunk else beside or chunk
