"""The request ID, which follows a request through one process. Traces use OpenTelemetry's
context."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("baton_request_id", default="")
"""ID of the request that the current task serves; empty outside of requests.

Set it where work on a request begins; tasks started from there inherit it.
"""
