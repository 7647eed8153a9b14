"""The memory for bodies that are held until their end has arrived."""

from services.picker.metrics import HELD_BYTES


class HeldBodies:
    """Bounds the bodies of all requests together. Lives on the event loop.

    Args:
        max_body_bytes: of one request.
        max_held_bytes: of all.
    """

    def __init__(self, max_body_bytes: int, max_held_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_held_bytes = max_held_bytes
        self.held_bytes = 0

    def grow(self, held: int, more: int) -> bool:
        """Hold more of a body; return False if there is no room: nothing is held then.

        Args:
            held: bytes of it that are held already.
            more: bytes to hold too.
        """
        total = self.held_bytes + more
        if held + more > self._max_body_bytes or total > self._max_held_bytes:
            return False
        self._set(total)
        return True

    def release(self, held: int) -> None:
        """Hold no more of a body."""
        self._set(self.held_bytes - held)

    def _set(self, size: int) -> None:
        self.held_bytes = size
        HELD_BYTES.set(size)
