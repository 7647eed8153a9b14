"""What a request needs of the connections to workers."""

from collections.abc import Callable, Mapping
from typing import Protocol

from baton.internal.v1 import cluster_pb2, router_pb2
from services.frontend.workers.connection import WorkerConnection


class Workers(Protocol):
    """The connections to all workers: `WorkerPool`, or a stand-in of a benchmark."""

    @property
    def lost(self) -> Mapping[str, str]:
        """Workers that take no requests: incarnations by id; a live view."""

    def usable(self, instance: cluster_pb2.Instance) -> bool:
        """Return whether a worker answered on its connection, which is open, and is not lost."""

    def get(self, target: router_pb2.Target) -> WorkerConnection:
        """Return the connection to a worker. No I/O: frames are sent once it is established."""

    def find_out_if_died(self, target: router_pb2.Target, tell: Callable[[bool], None]) -> None:
        """Let `tell` know, soon, whether a worker whose connection broke is dead for sure."""
