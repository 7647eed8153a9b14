"""The id of a request in logs, traces and responses."""

import secrets

from baton.rpc.request_id import clean_request_id
from baton.telemetry.context import request_id


def identify(*given: str) -> str:
    """Return the first given id that is valid, or a new one, and set it for the current task."""
    for candidate in given:
        if clean := clean_request_id(candidate):
            break
    else:
        clean = f"req-{secrets.token_hex(12)}"
    request_id.set(clean)
    return clean
