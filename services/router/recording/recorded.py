"""The fleet and its index, with recording of their inputs."""

from collections.abc import Collection, Iterable

from services.router.policy.costs import Policy
from services.router.prefix_index.index import PrefixIndex
from services.router.recording.records import (
    FORMAT,
    BlocksChanged,
    FleetTended,
    InstancePut,
    InstanceRemoved,
    LayoutsSet,
    Opened,
    ReportApplied,
    WorkerStale,
    Write,
)
from services.router.state.fleet import Fleet, Tended
from services.router.state.instances import InstanceState, LoadReport, ModelLayout
from services.router.state.rates import Bandwidths
from services.router.state.tickets import TicketTable


class RecordedIndex(PrefixIndex):
    """An index that records events."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def add_blocks(self, holder: str, tier: int, keys: Collection[bytes], group: int = 0) -> None:
        """Record blocks as readable in a tier."""
        self._write(BlocksChanged(True, holder, tier, b"".join(keys), group))
        super().add_blocks(holder, tier, keys, group)

    def remove_blocks(self, holder: str, tier: int, keys: Iterable[bytes], group: int = 0) -> None:
        """Record blocks as evicted from a tier."""
        removed = list(keys)
        self._write(BlocksChanged(False, holder, tier, b"".join(removed), group))
        super().remove_blocks(holder, tier, removed, group)


class RecordedFleet(Fleet):
    """A fleet that records its inputs: instances, load and time."""

    def __init__(
        self,
        router_id: str,
        policy: Policy,
        bandwidths: Bandwidths,
        silence_seconds: float,
        write: Write,
    ) -> None:
        write(Opened(FORMAT, router_id, policy, bandwidths, silence_seconds))
        super().__init__(RecordedIndex(write), TicketTable(router_id), bandwidths, silence_seconds)
        self._write = write
        self._tending = False

    def put(self, instance: InstanceState) -> None:
        """Add a worker or store, or replace its record."""
        self._write(InstancePut(instance))
        super().put(instance)

    def remove(self, instance_id: str) -> None:
        """Remove an instance that left the cluster."""
        self._write(InstanceRemoved(instance_id))
        super().remove(instance_id)

    def set_layouts(self, layouts: Iterable[ModelLayout]) -> None:
        """Replace the models' layouts."""
        all_layouts = list(layouts)
        self._write(LayoutsSet(all_layouts))
        super().set_layouts(all_layouts)

    def apply_report(self, report: LoadReport, now: float) -> None:
        """Apply a worker's load report."""
        # The fields of a message, which no encoder knows.
        tickets, sequences = list(report.tickets), list(report.ticket_sequences)
        adapters = list(report.resident_adapters)
        plain = report._replace(
            tickets=tickets, ticket_sequences=sequences, resident_adapters=adapters
        )
        self._write(ReportApplied(plain, now))
        super().apply_report(report, now)

    def mark_stale(self, worker_id: str) -> None:
        """Use a worker only if no other is left."""
        if not self._tending:
            self._write(WorkerStale(worker_id))
        super().mark_stale(worker_id)

    def tend(self, now: float) -> Tended:
        """Do periodic work; the workers that it marks stale are not recorded again."""
        self._write(FleetTended(now))
        self._tending = True
        try:
            return super().tend(now)
        finally:
            self._tending = False
