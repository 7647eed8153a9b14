"""Pauses a request's streams on their workers while its client does not read."""

from collections.abc import Mapping
from time import monotonic

from services.frontend.metrics import PAUSED, PAUSED_SECONDS, PAUSES
from services.frontend.workers.stream import WorkerStream


class RequestPauses:
    """Pauses the streams of one request. Owned by its `WorkerAssignments`.

    Args:
        streams: the open ones, by id; a live view.
    """

    def __init__(self, streams: Mapping[int, WorkerStream]) -> None:
        self._streams = streams
        self._since: float | None = None
        """When its streams were paused; None: they are not."""

    def pause(self) -> None:
        """Pause the open streams, and those that start until `resume`."""
        if self._since is None:
            self._since = monotonic()
            PAUSES.inc()
            PAUSED.inc()
            for stream in self._streams.values():
                stream.pause()

    def resume(self) -> None:
        """Resume the streams."""
        if self._since is not None:
            for stream in self._streams.values():
                stream.resume()
            self.end()

    def started(self, stream: WorkerStream) -> None:
        """Pause a stream that starts while the others are paused."""
        if self._since is not None:
            stream.pause()

    def end(self) -> None:
        """Record that its streams are released. Idempotent."""
        if self._since is not None:
            PAUSED.dec()
            PAUSED_SECONDS.inc(monotonic() - self._since)
            self._since = None
