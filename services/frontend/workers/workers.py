"""The interface of the worker connections, as used by requests."""

from collections.abc import Callable, Mapping
from typing import Protocol

from baton.internal.v1 import cluster_pb2, router_pb2
from services.frontend.workers.connection import WorkerConnection


class Workers(Protocol):
    """The connections to all workers: `WorkerPool`, or a benchmark's substitute."""

    @property
    def lost(self) -> Mapping[str, str]:
        """Workers that accept no requests: incarnations by id; a live view."""

    def usable(self, instance: cluster_pb2.Instance) -> bool:
        """Return whether a worker answered on its connection, which is open, and is not lost."""

    def get(self, target: router_pb2.Target) -> WorkerConnection:
        """Return the connection to a worker. No I/O: frames are sent once it is established."""

    def find_out_if_died(self, target: router_pb2.Target, tell: Callable[[bool], None]) -> None:
        """Report to `tell`, soon, whether a worker whose connection broke is certainly dead."""
