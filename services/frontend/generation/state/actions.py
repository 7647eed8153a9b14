"""The actions that `reconcile` returns and `Generation` carries out."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import WorkerStream


@dataclass(frozen=True, slots=True)
class Place:
    """Find a placement and reconcile with it."""

    excluded: Set[str]
    """Instance ids of workers that failed this request."""


@dataclass(frozen=True, slots=True)
class StartPrefill:
    """Start prefill for all choices on the placement's prefill worker."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class StartDecode:
    """Start decode of a choice on the placement's decode worker."""

    placement: Placement
    choice: int
    prepare: bool
    """Send Prepare: Generate follows once prefill has produced the first token."""
    wait_for_kv: bool
    """A prefill stream computes the prompt's KV: wait for it."""


@dataclass(frozen=True, slots=True)
class SendGenerate:
    """Let a prepared stream decode."""

    stream: WorkerStream


@dataclass(frozen=True, slots=True)
class UpdateSources:
    """Send a prepared stream the stores that may come to hold the prompt's KV instead."""

    stream: WorkerStream
    sources: Sequence[kvstore_pb2.KvSource]


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """Tell a stream that waits for KV that no more KV will arrive."""

    stream: WorkerStream


@dataclass(frozen=True, slots=True)
class Release:
    """Cancel a stream."""

    stream: WorkerStream


@dataclass(frozen=True, slots=True)
class AwaitReports:
    """Give the streams that end by themselves a moment to report usage."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Release the remaining streams and report to the client that the request has finished."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the request with an error."""

    error: BatonError


StreamAction = StartPrefill | StartDecode | SendGenerate | UpdateSources | PrefillDone | Release
"""Actions on one stream."""

Action = StreamAction | Place | AwaitReports | Finish | Fail
