"""The interface of a sink."""

from collections.abc import Sequence
from typing import Protocol


class SinkError(Exception):
    """A sink cannot accept records now. They are delivered again; the message gives the reason."""


class Sink(Protocol):
    """Stores records. Lives on the event loop; owned by one `Delivery`.

    Records are delivered again if it is unknown whether they were stored: after an error, and after
    a crash. Their `id` identifies duplicates.
    """

    @property
    def name(self) -> str:
        """Letters; the same in every process that delivers records to the same destination."""
        ...

    @property
    def local(self) -> bool:
        """Whether it is on this host, so that retries cost no other system anything."""
        ...

    async def write(self, records: Sequence[bytes]) -> None:
        """Store records as JSON, at least one, about 256 KiB or a long one; return once they are
        stored.

        Raises:
            SinkError: it is unknown whether all are stored.
        """
        ...

    async def close(self) -> None:
        """Release resources. Nothing is written afterwards."""
        ...
