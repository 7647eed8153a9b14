"""Who is told by the table what is readable, and where generations stand."""

from typing import Protocol

from baton.kv.objects import ObjectId
from services.kvstore.memory.slot import Slot


class ContentsListener(Protocol):
    """Is told what becomes readable and what is gone, in order."""

    def stored(self, *object_ids: ObjectId) -> None: ...

    def gone(self, *object_ids: ObjectId) -> None: ...


class ReadIndex(Protocol):
    """Shows readers what is readable."""

    def add(self, *slots: Slot) -> None: ...

    def remove(self, *slots: Slot) -> None: ...


class Generations(Protocol):
    """A counter per page of data."""

    def __getitem__(self, page: int, /) -> int: ...

    def __setitem__(self, page: int, value: int, /) -> None: ...
