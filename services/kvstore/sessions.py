"""Sessions of attached clients."""

import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client that attached."""

    client_id: str
    incarnation: str


class Sessions:
    """Sessions by id, at most `limit`: the least recently used one is dropped first.

    Owned by KvStoreService, on the event loop. A client whose session is gone attaches again before
    it opens another stream; open streams stay open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[str, ClientSession] = {}

    def open(self, session: ClientSession) -> str:
        """Begin a session; return its id, a random secret."""
        while len(self._sessions) >= self._limit:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_hex(16)
        self._sessions[session_id] = session
        return session_id

    def find(self, session_id: str) -> ClientSession | None:
        """Return a session, and count it as used; None if it is unknown."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._sessions[session_id] = session
        return session
