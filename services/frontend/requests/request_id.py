"""The id that a request has in logs, traces and answers."""

import secrets

from baton.rpc.interceptor import clean_request_id
from baton.telemetry.context import request_id


def identify(*given: str) -> str:
    """The first of the given ids that may be used, else a new one; the current task takes it on."""
    for candidate in given:
        if clean := clean_request_id(candidate):
            break
    else:
        clean = f"req-{secrets.token_hex(12)}"
    request_id.set(clean)
    return clean
