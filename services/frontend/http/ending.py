"""How a server ends."""


class ServerEnding:
    """How far a server is with its end, as its connections see it."""

    def __init__(self) -> None:
        self.retiring = False
        """Each answer is the last one of its connection, and says so."""
        self.refusing = False
        """Connections that come now are refused."""
