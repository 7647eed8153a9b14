"""Bounds of a download, all in one place."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PullLimits:
    """How long a download waits, how often it tries again, and how much it does at once."""

    parallel: int = 4
    """Files at the same time."""
    connect_seconds: float = 10.0
    read_seconds: float = 30.0
    """Until the next bytes arrive."""
    slow_seconds: float = 60.0
    """In which at least `slow_bytes` arrive, or the connection is given up."""
    slow_bytes: int = 64 * 1024
    attempts: int = 6
    """In a row, each of which brings less than `progress_bytes`."""
    progress_bytes: int = MIB
    backoff_seconds: float = 1.0
    """Before the second attempt; doubled for each further one."""
    max_backoff_seconds: float = 30.0
    """Also of what a server asks for in Retry-After."""
    lock_seconds: float = 3600.0
    """For another process that downloads the same model into the same directory."""
    spare_bytes: int = 64 * MIB
    """What a download leaves free on the disk."""
    max_list_bytes: int = 16 * MIB
    """Of a source's list of files."""
    redirects: int = 5

    def backoff(self, failures: int, asked: float = 0.0) -> float:
        """Return the seconds until the next attempt.

        Args:
            failures: attempts that failed in a row.
            asked: by the server; 0: it does not ask.
        """
        own = self.backoff_seconds * 2.0 ** max(0, failures - 1)
        return min(self.max_backoff_seconds, max(own, asked))
