"""One object as a reader gets it: where its bytes are, and how a copy of them is checked."""

from collections.abc import Sequence

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId

STRIDE_BYTES = 256 * 1024
"""Bytes that are copied and then hashed while they are in the core's cache."""


class FetchedObject:
    """An object, there until the next batch is asked for; copy it with `copy_to`.

    Args:
        index: which of the fetched keys.
        pieces: its bytes in order.
        object_id: its name.
        digest: what its writer said; None: copies are trusted.
        lease_id: the store keeps the slot for this reader; 0: it does not, and the object may go
            while it is copied, which the generation tells.
        generations: what slots have now, by page.
        page: where the slot begins.
        generation: what the slot had when the object was in it.
    """

    __slots__ = (
        "_digest",
        "_generation",
        "_generations",
        "_object_id",
        "_page",
        "_pieces",
        "bad",
        "index",
        "lease_id",
        "nbytes",
    )

    def __init__(
        self,
        index: int,
        pieces: Sequence[memoryview],
        nbytes: int,
        object_id: ObjectId,
        digest: bytes | None,
        lease_id: int,
        generations: Sequence[int],
        page: int,
        generation: int,
    ) -> None:
        self.index = index
        self.nbytes = nbytes
        self.lease_id = lease_id
        self.bad = False
        """A copy was wrong: the store is told or asked anew, and the object is not taken."""
        self._pieces = pieces
        self._object_id = object_id
        self._digest = digest
        self._generations = generations
        self._page = page
        self._generation = generation

    def copy_to(self, target: memoryview) -> bool:
        """Copy all bytes to `target`; answers whether the copy is the object.

        Until it has answered, and if it answers False, `target` may hold anything: give it to
        nobody. May be called on any thread. Each stride is hashed as it stands in `target`, right
        after it was copied.
        """
        if target.nbytes != self.nbytes:
            raise ValueError(f"{target.nbytes} bytes are no room for {self.nbytes}")
        if self._digest is None:
            at = 0
            for piece in self._pieces:
                target[at : at + piece.nbytes] = piece
                at += piece.nbytes
            good = True
        else:
            digest = start_digest(self._object_id, self.nbytes)
            at = 0
            for piece in self._pieces:
                if piece.nbytes == self.nbytes <= STRIDE_BYTES:
                    target[:] = piece
                    digest.update(target)
                    break
                for start in range(0, piece.nbytes, STRIDE_BYTES):
                    part = piece[start : start + STRIDE_BYTES]
                    copied = target[at : at + part.nbytes]
                    copied[:] = part
                    digest.update(copied)
                    at += part.nbytes
            good = digest.digest() == self._digest
        # The generation comes last: what was copied before it was looked at is what was committed.
        good = good and self._generations[self._page] == self._generation
        self.bad = self.bad or not good
        return good
