"""One object as a reader receives it: where its bytes are, and how a copy of them is verified."""

from collections.abc import Sequence

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId

STRIDE_BYTES = 256 * 1024
"""Bytes that are copied and then hashed while still in the core's cache."""


class FetchedObject:
    """A fetched object, valid until the next batch is requested; copy it with `copy_to`.

    Args:
        index: which of the fetched keys.
        pieces: its bytes in order.
        nbytes: their number.
        object_id: its name.
        digest: the digest by the writer; None: copies are not verified.
        lease_id: the lease on the slot; 0: the store may reuse the slot during the copy, which the
            generation reveals.
        generations: current generations of the slots, by page.
        page: the page on which the slot begins.
        generation: the slot's generation when it held the object.
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
        """Whether a copy was corrupt: this is reported to the store, or the object requested again,
        and the object is not used.
        """
        self._pieces = pieces
        self._object_id = object_id
        self._digest = digest
        self._generations = generations
        self._page = page
        self._generation = generation

    def copy_to(self, target: memoryview) -> bool:
        """Copy all bytes to `target`; return whether the copy is correct.

        Before it returns, and if it returns False, `target` may hold anything and must not be used.
        Any thread may call it. Each stride is hashed in `target`, right after it was copied.

        Raises:
            ValueError: `target` is not as long as the object.
        """
        if target.nbytes != self.nbytes:
            raise ValueError(f"a buffer of {target.nbytes} bytes is too small for {self.nbytes}")
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
        # The generation is checked last: everything copied before the check is what was committed.
        good = good and self._generations[self._page] == self._generation
        self.bad = self.bad or not good
        return good
