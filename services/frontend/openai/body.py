"""What every body has: bounds, and the names that its head gives it."""

from baton.settings import FrontendLimits, HttpSettings
from baton.telemetry.context import request_id
from services.frontend.generation.admission import stopping
from services.frontend.http.asgi import Receive, Scope
from services.frontend.http.body import header, read_json
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.values import check_values
from services.frontend.openai.request.parse import EXECUTION_HEADER, RequestNames


async def read_body(
    scope: Scope, receive: Receive, settings: HttpSettings, limits: FrontendLimits
) -> bytes:
    """Read a body of JSON.

    Raises:
        BatonError: it is too large, too slow, or has too many values, or the frontend is stopping.
    """
    data = await read_json(scope, receive, settings.max_body_bytes, settings.body_timeout_seconds)
    if connection_of(scope).late:
        raise stopping()
    check_values(data, limits.max_body_values)
    return data


def names_of(scope: Scope) -> RequestNames:
    """Return what the head of a request says that it is called."""
    return RequestNames(request_id.get(), header(scope, EXECUTION_HEADER))
