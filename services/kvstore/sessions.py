"""Who attached."""

import secrets
from dataclasses import dataclass

MAX_SESSIONS = 4096


@dataclass(frozen=True, slots=True)
class Session:
    """One Attach."""

    client_id: str
    incarnation: str


class Sessions:
    """Sessions by id, bounded: the one that was not used for longest goes first.

    A client whose session went opens no new stream on it; it attaches again.
    """

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._sessions: dict[str, Session] = {}

    def open(self, session: Session) -> str:
        """Begin a session; answers its id, which nobody can guess."""
        while len(self._sessions) >= self._limit:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_hex(16)
        self._sessions[session_id] = session
        return session_id

    def find(self, session_id: str) -> Session | None:
        """The session, which counts as used."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._sessions[session_id] = session
        return session
