"""How far a download is, counted by its threads and shown by its caller."""

from threading import Lock


class PullProgress:
    """Bytes and files of a download. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._received = 0
        self._present = 0
        self.total_bytes = 0
        """Of all files; set once they are listed."""

    def add(self, received: int) -> None:
        """Count bytes that arrived; less than 0: bytes that are thrown away again."""
        with self._lock:
            self._received += received

    def add_present(self, present: int) -> None:
        """Count bytes that were there already; less than 0: bytes that are thrown away."""
        with self._lock:
            self._present += present

    @property
    def received_bytes(self) -> int:
        """Bytes from the source."""
        return self._received

    @property
    def present_bytes(self) -> int:
        """Bytes of an earlier download, or of another revision."""
        return self._present

    @property
    def done_bytes(self) -> int:
        """Bytes of files that are there."""
        return self._received + self._present
