"""Routes of administration, and what every request has: body bounds, a deadline, a response."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from baton.cluster.etcd.client import EtcdError
from baton.errors import BatonError, Reason
from baton.settings import HttpSettings
from baton.telemetry.logs import get_logger
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.admin import accounts, adapters, audit, keys, projects, rate_limits, spend
from services.frontend.admin.call import AdminCall, Organizations
from services.frontend.admin.objects import Object, RawBody
from services.frontend.admin.usage import completions, costs, teams
from services.frontend.generation.admission import stopping
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.body import header, read_json
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_bytes, send_json
from services.frontend.http.routes import Route
from services.frontend.requests import record

PREFIX = "/v1/organization/"
DEADLINE_SECONDS = 5.0
"""For all of a request's calls to etcd."""
MAX_AT_ONCE = 64
"""Most concurrent requests; more are rejected."""
MAX_BODY_BYTES = 64 * 1024
_RETRY_SECONDS = 1.0

Handler = Callable[[AdminCall], Awaitable[Object | RawBody]]

log = get_logger(__name__)

_SPEND: dict[str, dict[str, Handler]] = {
    "spend_limit": {
        "GET": spend.retrieve_limit,
        "POST": spend.update_limit,
        "DELETE": spend.delete_limit,
    },
    "spend_alerts": {"GET": spend.list_alerts, "POST": spend.create_alert},
    "spend_alerts/{alert_id}": {
        "GET": spend.retrieve_alert,
        "POST": spend.update_alert,
        "DELETE": spend.delete_alert,
    },
}
"""Paths of the tenant, and of each project."""
_HANDLERS: dict[str, dict[str, Handler]] = {
    **_SPEND,
    **{f"projects/{{project_id}}/{path}": handlers for path, handlers in _SPEND.items()},
    "projects": {"GET": projects.list_projects, "POST": projects.create_project},
    "projects/{project_id}": {
        "GET": projects.retrieve_project,
        "POST": projects.update_project,
    },
    "projects/{project_id}/archive": {"POST": projects.archive_project},
    "projects/{project_id}/service_accounts": {
        "GET": accounts.list_accounts,
        "POST": accounts.create_account,
    },
    "projects/{project_id}/service_accounts/{service_account_id}": {
        "GET": accounts.retrieve_account,
        "POST": accounts.update_account,
        "DELETE": accounts.delete_account,
    },
    "projects/{project_id}/service_accounts/{service_account_id}/api_keys": {
        "POST": accounts.create_account_key,
    },
    "projects/{project_id}/api_keys": {"GET": keys.list_keys},
    "projects/{project_id}/api_keys/{api_key_id}": {
        "GET": keys.retrieve_key,
        "POST": keys.update_key,
        "DELETE": keys.delete_key,
    },
    "projects/{project_id}/rate_limits": {"GET": rate_limits.list_rate_limits},
    "projects/{project_id}/rate_limits/{rate_limit_id}": {
        "POST": rate_limits.update_rate_limit,
    },
    "admin_api_keys": {"GET": keys.list_admin_keys, "POST": keys.create_admin_key},
    "admin_api_keys/{key_id}": {"GET": keys.retrieve_admin_key, "DELETE": keys.delete_admin_key},
    "audit_logs": {"GET": audit.list_audit_logs},
    "usage/{kind}": {"GET": completions.usage},
    "costs": {"GET": costs.costs},
}
_OF_PROJECT = f"{PREFIX}projects/{{project_id}}"
_USAGE = ("usage/{kind}", "costs")
"""Paths that a key with the scope `usage` may also use."""
TEAM_USAGE = "/v1/usage"
"""The only path that is neither OpenAI's nor vLLM's."""
_ADAPTERS: dict[str, Handler] = {
    "/v1/load_lora_adapter": adapters.load_adapter,
    "/v1/unload_lora_adapter": adapters.unload_adapter,
}
"""vLLM's paths."""
_READS = (KeyScope.USAGE, KeyScope.ADMIN)


@dataclass(frozen=True, slots=True)
class Action:
    """A method of an administration path."""

    template: str
    method: str
    handler: Handler
    needs: tuple[KeyScope, ...]
    """Scopes of which a key must have at least one."""


def actions() -> Iterator[Action]:
    """Yield all actions."""
    for template, handlers in _HANDLERS.items():
        needs = _READS if template in _USAGE else (KeyScope.ADMIN,)
        for method, handler in handlers.items():
            yield Action(PREFIX + template, method, handler, needs)
    for path, change in _ADAPTERS.items():
        yield Action(path, "POST", change, (KeyScope.ADMIN,))
    yield Action(TEAM_USAGE, "GET", teams.team_usage, _READS)


class OrganizationRoutes:
    """Answers administration requests, whose key is known to allow them.

    Other requests are not affected: it waits for etcd, for DEADLINE_SECONDS at most.

    Args:
        organizations: the backend; None: there are no keys (`auth.mode` off).
        settings: bounds of bodies.
    """

    def __init__(self, organizations: Organizations | None, settings: HttpSettings) -> None:
        self._organizations = organizations
        self._settings = settings
        self._running = 0

    def routes(self) -> list[Route]:
        """Return the routes of administration."""
        return [
            Route(
                action.method,
                action.template,
                "administration",
                partial(self._answer, action),
                action.needs,
                action.handler,
            )
            for action in actions()
        ]

    async def _answer(self, action: Action, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            BatonError: an error of the table; UNAVAILABLE: etcd is unavailable.
            ClientGoneError: the client disconnected before its body was complete.
        """
        if self._organizations is None:
            raise BatonError(
                Reason.FAILED_PRECONDITION,
                "the admin API requires API keys, and this cluster does not use them: set "
                "auth.mode to keys (BATON_AUTH_MODE=keys), and create a key with "
                "`baton keys create --admin`",
            )
        if self._running >= MAX_AT_ONCE:
            raise BatonError(
                Reason.OVERLOADED,
                f"{MAX_AT_ONCE} admin requests are already running; retry later",
                retry_after=_RETRY_SECONDS,
            )
        self._running += 1
        who = record.current().principal
        try:
            body = b"" if action.method != "POST" else await self._read(scope, receive)
            accept, ids = header(scope, b"accept"), scope["path_params"]
            query, of_project = scope["query_string"], action.template.startswith(_OF_PROJECT)
            call = AdminCall(self._organizations, who, ids, query, body, accept, of_project)
            answer = await self._run(action, call)
            if action.method != "GET":
                await self._organizations.wait_visible(who.tenant.id)
        finally:
            self._running -= 1
        headers = ((b"cache-control", b"no-store"),)
        if isinstance(answer, RawBody):
            kind = (b"content-type", answer.content_type)
            await send_bytes(send, answer.data, 200, (kind, *headers))
        else:
            await send_json(send, answer, headers=headers)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        limit = min(MAX_BODY_BYTES, self._settings.max_body_bytes)
        data = await read_json(scope, receive, limit, self._settings.body_timeout_seconds)
        if connection_of(scope).late:
            raise stopping()
        return data

    async def _run(self, action: Action, call: AdminCall) -> Object | RawBody:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await action.handler(call)
        except (EtcdError, TimeoutError) as error:
            what = str(error) or "timed out"
            log.warning("organization.etcd.unavailable", route=action.template, error=what)
            unknown = "" if action.method == "GET" else "; the change may have taken effect"
            raise BatonError(
                Reason.UNAVAILABLE,
                f"etcd is unreachable, and the admin API needs it{unknown}",
                retry_after=_RETRY_SECONDS,
            ) from error
