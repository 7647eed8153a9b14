"""The workers and stores that placements choose from, as candidates that are always up to date.

Plain state without I/O: discovery says who lives, load streams say how busy they are, tickets say
what is on its way to them. A candidate is rebuilt only when something about it changed.
"""

from collections import Counter
from collections.abc import Iterable

from baton.internal.v1 import cluster_pb2, worker_pb2
from services.router.policy.costs import Worker
from services.router.prefix_index.index import PrefixIndex
from services.router.state.rates import RateBook
from services.router.state.tickets import TicketBook

_READS = (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_COMBINED)
_WRITES = (cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)
WORKER_ROLES = frozenset((*_READS, *_WRITES))
_MAX_NAMES = 1024

CardKey = tuple[str, bytes]
"""A model's name and a layout."""


class Fleet:
    """Everything that a placement depends on. One loop owns it."""

    def __init__(self, index: PrefixIndex, tickets: TicketBook) -> None:
        self.index = index
        self.tickets = tickets
        self._rates = RateBook()
        self._instances: dict[str, cluster_pb2.Instance] = {}
        self._reports: dict[str, worker_pb2.LoadReport] = {}
        self._silent: set[str] = set()
        self._cards: dict[CardKey, cluster_pb2.ModelCard] = {}
        self._by_model: dict[str, list[str]] = {}
        self._built: dict[str, Worker] = {}
        self._names: dict[str, None] = {}

    def up(self, instance: cluster_pb2.Instance) -> None:
        """A worker or store came, or said something new about itself."""
        self._instances[instance.id] = instance
        if instance.role in WORKER_ROLES:
            self._remember(instance.model)
            self._touch(instance.id)
        else:
            self._touch(*self._by_store(instance.id))
        self._sort()

    def down(self, instance_id: str) -> None:
        """An instance is gone, and all that is known of it."""
        self._instances.pop(instance_id, None)
        self._reports.pop(instance_id, None)
        self._silent.discard(instance_id)
        self._rates.forget(instance_id)
        self.tickets.forget_worker(instance_id)
        self.index.remove(instance_id)
        self._touch(instance_id, *self._by_store(instance_id))
        self._sort()

    def cards(self, cards: Iterable[cluster_pb2.ModelCard]) -> None:
        """The model cards as they are now."""
        self._cards = {(card.name, card.layout_id): card for card in cards}
        for name, _ in self._cards:
            self._remember(name)
        self._touch(*self._instances)

    def report(self, report: worker_pb2.LoadReport) -> None:
        """A worker said how busy it is. A report of an earlier incarnation is dropped."""
        worker_id = report.instance_id
        instance = self._instances.get(worker_id)
        if instance is None or instance.incarnation != report.incarnation:
            return
        self._reports[worker_id] = report
        self._silent.discard(worker_id)
        self._rates.observe(worker_id, instance.layout_id, report)
        self.tickets.echoed(worker_id, report.tickets)
        self._touch(worker_id)

    def silence(self, worker_id: str) -> None:
        """A worker's load stream broke: it is used only where nobody else is left."""
        self._silent.add(worker_id)
        self._touch(worker_id)

    def pledges_changed(self, worker_ids: Iterable[str]) -> None:
        """Tickets of these workers came or went."""
        self._touch(*worker_ids)

    def candidates(self, model: str) -> list[Worker]:
        """The workers of a model that have reported, in a stable order."""
        built = self._built
        workers = []
        for worker_id in self._by_model.get(model, ()):
            worker = built.get(worker_id) or self._build(worker_id)
            if worker is not None:
                workers.append(worker)
        return workers

    def knows(self, model: str) -> bool:
        """Whether the model has or had workers."""
        return model in self._names

    def settled(self, instances: Iterable[cluster_pb2.Instance]) -> bool:
        """Whether all of these are known, and every worker among them has reported or is silent."""
        return all(
            i.id in self._instances
            and (i.role not in WORKER_ROLES or i.id in self._reports or i.id in self._silent)
            for i in instances
        )

    def store_address(self, store_id: str) -> str | None:
        """Where a store answers; None for one that is gone."""
        store = self._instances.get(store_id)
        return store.address if store is not None else None

    def counts(self) -> Counter[str]:
        """Live workers and stores by the name of their role."""
        return Counter(cluster_pb2.Role.Name(i.role) for i in self._instances.values())

    def _build(self, worker_id: str) -> Worker | None:
        instance = self._instances[worker_id]
        report = self._reports.get(worker_id)
        card = self._cards.get((instance.model, instance.layout_id))
        if report is None or card is None or card.block_tokens <= 0:
            return None
        pledge = self.tickets.pledged(worker_id)
        worker = self._built[worker_id] = Worker(
            id=worker_id,
            incarnation=instance.incarnation,
            address=instance.address,
            reads=instance.role in _READS,
            writes=instance.role in _WRITES,
            layout_id=instance.layout_id,
            store_id=instance.store_id if instance.store_id in self._instances else "",
            block_tokens=card.block_tokens,
            block_bytes=card.block_bytes,
            rates=self._rates.rates(worker_id, instance.layout_id),
            running=report.running + pledge.sequences,
            waiting=report.waiting,
            pending_prompt_tokens=report.pending_prompt_tokens + pledge.prompt_tokens,
            free_pages=report.free_pages - pledge.pages,
            total_pages=report.total_pages,
            draining=instance.draining or report.draining,
            silent=worker_id in self._silent,
        )
        return worker

    def _by_store(self, store_id: str) -> list[str]:
        return [i.id for i in self._instances.values() if i.store_id == store_id]

    def _touch(self, *worker_ids: str) -> None:
        for worker_id in worker_ids:
            self._built.pop(worker_id, None)

    def _sort(self) -> None:
        self._by_model = {}
        for instance in sorted(self._instances.values(), key=lambda i: i.id):
            if instance.role in WORKER_ROLES:
                self._by_model.setdefault(instance.model, []).append(instance.id)

    def _remember(self, name: str) -> None:
        """Names live on after their last worker; the oldest goes when there are too many."""
        if name and name not in self._names:
            if len(self._names) >= _MAX_NAMES:
                del self._names[next(iter(self._names))]
            self._names[name] = None
