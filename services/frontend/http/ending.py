"""The shutdown state of a server."""


class ServerEnding:
    """How far a server is in its shutdown, as seen by its connections."""

    def __init__(self) -> None:
        self.retiring = False
        """Each response is the last one of its connection, and says so."""
        self.refusing = False
        """New connections are rejected."""
