"""Providers of objects that a read waits for, as the wait table drives them."""

from typing import Protocol

from baton.kv.objects import ObjectId
from services.kvstore.reads.read_request import ReadRequest


class PeerFetcher(Protocol):
    """Fetches objects from other stores."""

    def fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        """Request an object, which the request waits for, from the request's sources."""

    def cancel(self, request: ReadRequest, object_id: ObjectId) -> None:
        """End the request's interest in an object; no error if there is none."""


class DiskLoader(Protocol):
    """Loads objects from disk."""

    def load(self, object_id: ObjectId) -> bool:
        """Load an object into memory; return False if the disk does not have it."""

    def is_loading(self, object_id: ObjectId) -> bool:
        """Return whether an object is being loaded into memory."""
