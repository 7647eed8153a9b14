"""The id that a request has in logs, traces and answers."""

import secrets
from enum import Enum

from baton.rpc.request_id import clean_request_id
from baton.telemetry.context import request_id


class IdSource(Enum):
    """Where the id of a request comes from."""

    DRAWN = "drawn"
    """The frontend drew it."""
    HEADER = "header"
    """`x-request-id`, of the client or of a proxy before it."""
    FIELD = "field"
    """The request's own field, over gRPC."""


def identify(*given: str) -> str:
    """Return the first given id that is valid, else a new one, and set it for the current task."""
    for candidate in given:
        if clean := clean_request_id(candidate):
            break
    else:
        clean = f"req-{secrets.token_hex(12)}"
    request_id.set(clean)
    return clean
