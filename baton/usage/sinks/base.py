"""What a sink is."""

from collections.abc import Sequence
from typing import Protocol


class SinkError(Exception):
    """A sink cannot take records now. They are brought again; the text says why."""


class Sink(Protocol):
    """Takes usage records. Lives on the event loop; owned by one `Delivery`.

    Records come again where it is not known whether it has them: after an error, and after a crash.
    `UsageRecord.id` tells which are the same.
    """

    @property
    def name(self) -> str:
        """Of letters; the same in every process that brings records to the same place."""
        ...

    @property
    def local(self) -> bool:
        """Whether it is this host's, so that trying again costs no one else anything."""
        ...

    async def write(self, records: Sequence[bytes]) -> None:
        """Take records as JSON, at least one, about 256 KiB at most; return once they are kept.

        Raises:
            SinkError: it is not known that all are kept.
        """
        ...

    async def close(self) -> None:
        """Release what it holds. Nothing is written afterwards."""
        ...
