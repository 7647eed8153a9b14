"""Failures of a download: for good, and for now."""


class PullError(Exception):
    """A model cannot be downloaded. The text is a sentence with what to do; it has no secrets."""


class TransientError(Exception):
    """An attempt failed, and the next one may not.

    Args:
        reason: continues a sentence after the name of the file.
        after_seconds: how long the server asks to wait; 0: it does not.
    """

    def __init__(self, reason: str, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
