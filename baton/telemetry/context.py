"""What follows a request through one process: its id. Traces travel in OpenTelemetry's context."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("baton_request_id", default="")
"""Id of the request that the current task serves; empty outside of requests.

Set it where work on a request begins; tasks started from there inherit it.
"""
