"""The workers and stores that placements choose from, always up to date.

Plain state without I/O: discovery says which instances live, load streams how busy they are, and
tickets what is on its way to them. A `Worker` is rebuilt only when something about it changed.
"""

from collections import Counter
from collections.abc import Iterable

from baton.internal.v1 import cluster_pb2, worker_pb2
from services.router.prefix_index.index import PrefixIndex
from services.router.state.rates import RateEstimator
from services.router.state.tickets import TicketTable
from services.router.state.worker import Worker

_PREFILL_ROLES = (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_COMBINED)
_DECODE_ROLES = (cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)
WORKER_ROLES = frozenset((*_PREFILL_ROLES, *_DECODE_ROLES))
_MAX_NAMES = 1024

CardKey = tuple[str, bytes]
"""A model's name and a layout."""


class Fleet:
    """Everything that a placement depends on. One loop owns it."""

    def __init__(self, index: PrefixIndex, tickets: TicketTable) -> None:
        self.index = index
        self.tickets = tickets
        self._rates = RateEstimator()
        self._instances: dict[str, cluster_pb2.Instance] = {}
        self._adapters: dict[str, frozenset[tuple[str, bytes]]] = {}
        """Of each worker; it is rebuilt more often than they change."""
        self._reports: dict[str, worker_pb2.LoadReport] = {}
        self._stale: set[str] = set()
        self._cards: dict[CardKey, cluster_pb2.ModelCard] = {}
        self._by_model: dict[str, list[str]] = {}
        self._workers: dict[str, Worker] = {}
        self._model_names: dict[str, None] = {}

    def put(self, instance: cluster_pb2.Instance) -> None:
        """Add a worker or store, or replace its record."""
        self._instances[instance.id] = instance
        if instance.role in WORKER_ROLES:
            self._adapters[instance.id] = frozenset((a.name, a.digest) for a in instance.adapters)
            self._remember(instance.model)
            self._invalidate(instance.id)
        else:
            self._invalidate(*self._workers_of_store(instance.id))
        self._sort()

    def remove(self, instance_id: str) -> None:
        """Remove an instance that left the cluster, and all that is known of it."""
        self._instances.pop(instance_id, None)
        self._adapters.pop(instance_id, None)
        self._reports.pop(instance_id, None)
        self._stale.discard(instance_id)
        self._rates.remove_worker(instance_id)
        self.tickets.remove_worker(instance_id)
        self.index.remove_holder(instance_id)
        self._invalidate(instance_id, *self._workers_of_store(instance_id))
        self._sort()

    def set_model_cards(self, cards: Iterable[cluster_pb2.ModelCard]) -> None:
        """Replace the model cards."""
        self._cards = {(card.name, card.layout_id): card for card in cards}
        for name, _ in self._cards:
            self._remember(name)
        self._invalidate(*self._instances)

    def apply_report(self, report: worker_pb2.LoadReport) -> None:
        """Take in a worker's load report. One of an earlier incarnation is dropped."""
        worker_id = report.instance_id
        instance = self._instances.get(worker_id)
        if instance is None or instance.incarnation != report.incarnation:
            return
        self._reports[worker_id] = report
        self._stale.discard(worker_id)
        self._rates.observe(worker_id, instance.layout_id, report)
        self.tickets.acknowledge(worker_id, report.tickets)
        self._invalidate(worker_id)

    def mark_stale(self, worker_id: str) -> None:
        """Use a worker only where no other is left: its load stream broke."""
        self._stale.add(worker_id)
        self._invalidate(worker_id)

    def load_changed(self, worker_ids: Iterable[str]) -> None:
        """Rebuild these workers at their next use: tickets for them were issued or ended."""
        self._invalidate(*worker_ids)

    def workers(self, model: str) -> list[Worker]:
        """Return the workers of a model that have reported, in a stable order."""
        built = self._workers
        workers = []
        for worker_id in self._by_model.get(model, ()):
            worker = built.get(worker_id) or self._build(worker_id)
            if worker is not None:
                workers.append(worker)
        return workers

    def knows_model(self, model: str) -> bool:
        """Return whether the model has or had workers."""
        return model in self._model_names

    def all_reported(self, instances: Iterable[cluster_pb2.Instance]) -> bool:
        """Return whether all of these are known, and the workers among them reported or stale."""
        return all(
            i.id in self._instances
            and (i.role not in WORKER_ROLES or i.id in self._reports or i.id in self._stale)
            for i in instances
        )

    @property
    def any_reported(self) -> bool:
        """Whether the load of a worker is known."""
        return bool(self._reports)

    def store_address(self, store_id: str) -> str | None:
        """Return a store's address; None for one that is not in the cluster."""
        store = self._instances.get(store_id)
        return store.address if store is not None else None

    def role_counts(self) -> Counter[str]:
        """Return the number of live workers and stores by the name of their role."""
        return Counter(cluster_pb2.Role.Name(i.role) for i in self._instances.values())

    def _build(self, worker_id: str) -> Worker | None:
        instance = self._instances[worker_id]
        report = self._reports.get(worker_id)
        card = self._cards.get((instance.model, instance.layout_id))
        if report is None or card is None or card.block_tokens <= 0:
            return None
        in_flight = self.tickets.in_flight(worker_id)
        worker = self._workers[worker_id] = Worker(
            id=worker_id,
            incarnation=instance.incarnation,
            address=instance.address,
            can_prefill=instance.role in _PREFILL_ROLES,
            can_decode=instance.role in _DECODE_ROLES,
            layout_id=instance.layout_id,
            store_id=instance.store_id if instance.store_id in self._instances else "",
            block_tokens=card.block_tokens,
            block_bytes=card.block_bytes,
            rates=self._rates.rates(worker_id, instance.layout_id),
            running=report.running + in_flight.sequences,
            waiting=report.waiting,
            pending_prompt_tokens=report.pending_prompt_tokens + in_flight.prompt_tokens,
            free_pages=report.free_pages - in_flight.pages,
            total_pages=report.total_pages,
            tokenizer_digest=instance.tokenizer_digest,
            adapters=self._adapters[worker_id],
            draining=instance.draining or report.draining,
            stale=worker_id in self._stale,
        )
        return worker

    def _workers_of_store(self, store_id: str) -> list[str]:
        return [i.id for i in self._instances.values() if i.store_id == store_id]

    def _invalidate(self, *worker_ids: str) -> None:
        for worker_id in worker_ids:
            self._workers.pop(worker_id, None)

    def _sort(self) -> None:
        self._by_model = {}
        for instance in sorted(self._instances.values(), key=lambda i: i.id):
            if instance.role in WORKER_ROLES:
                self._by_model.setdefault(instance.model, []).append(instance.id)

    def _remember(self, model: str) -> None:
        """Keep a model's name after its last worker left; the oldest goes beyond the limit."""
        if model and model not in self._model_names:
            if len(self._model_names) >= _MAX_NAMES:
                del self._model_names[next(iter(self._model_names))]
            self._model_names[model] = None
