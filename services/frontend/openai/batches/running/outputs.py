"""Lines of output files and error files, and what becomes of a line that failed."""

from typing import Any
from uuid import UUID

from baton.errors import BatonError, Reason
from services.frontend.http.responses import encode_line

_LATER = frozenset(
    {
        *(Reason.UNAVAILABLE, Reason.NO_WORKER, Reason.MODEL_LOADING, Reason.OVERLOADED),
        *(Reason.DRAINING, Reason.NO_CAPACITY, Reason.MODEL_NOT_FOUND),
    }
)
"""There is no place for it now: it waits. Models and adapters were there when the input was
checked: one without workers is unknown to a frontend that started later."""
_AGAIN = frozenset(
    {
        *(Reason.WORKER_LOST, Reason.STREAM_LOST, Reason.INTERNAL, Reason.UNKNOWN),
        *(Reason.DATA_LOSS, Reason.ABORTED, Reason.DEADLINE, Reason.CANCELLED),
    }
)
"""It failed for no fault of its own: it runs again a few times."""
_NOT_RUN = {
    "expired": ("batch_expired", "the completion window of the batch ended before this line ran"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this line ran"),
}


def waits(error: BatonError) -> bool:
    """Return whether a line is to wait: it could not begin."""
    limited = error.reason in (Reason.RATE_LIMITED, Reason.INSUFFICIENT_QUOTA)
    return error.reason in _LATER or (limited and error.retry_after is not None)


def runs_again(error: BatonError) -> bool:
    """Return whether a line that failed may succeed if it runs again."""
    return error.reason in _AGAIN


def request_name(batch: UUID, number: int) -> str:
    """Return the id of a line's request."""
    return f"batch_req_{batch.hex}_{number}"


def answered(name: str, custom_id: str, body: dict[str, Any]) -> str:
    """Return the line of a response."""
    return _line(name, custom_id, _response(name, 200, body), None)


def refused(name: str, custom_id: str, error: BatonError) -> str:
    """Return the line of a request that was rejected, or failed."""
    response = _response(name, error.http_status, error.to_openai())
    said = {"code": error.reason.openai_code, "message": error.message}
    return _line(name, custom_id, response, said)


def not_run(name: str, custom_id: str, outcome: str) -> str:
    """Return the line of a request that did not run before its batch ended."""
    code, message = _NOT_RUN[outcome]
    return _line(name, custom_id, None, {"code": code, "message": message})


def _response(name: str, status: int, body: object) -> dict[str, Any]:
    return {"status_code": status, "request_id": name, "body": body}


def _line(
    name: str, custom_id: str, response: dict[str, Any] | None, error: dict[str, Any] | None
) -> str:
    line = {"id": name, "custom_id": custom_id, "response": response, "error": error}
    return encode_line(line).decode()
