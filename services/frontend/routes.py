"""The table of all HTTP routes: OpenAI's and vLLM's paths, administration, health, documents."""

from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.access.authenticator import Authenticator
from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.generation.inference import Inference
from services.frontend.http.asgi import Scope
from services.frontend.http.routes import Route, RoutedApp, RouteTable
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.openapi import OpenApi
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.requests.record import OPERATOR, RequestRecord


def route_table(
    handlers: Handlers,
    responses: ResponsesHandlers,
    compact: CompactHandler,
    stored: StoredResponses,
    conversations: ConversationHandlers,
    completions: StoredCompletions,
    files: FileHandlers,
    batches: BatchHandlers,
    webhooks: WebhookHandlers,
    organization: OrganizationRoutes,
    *,
    metrics: bool,
) -> RouteTable:
    """Return every route that a frontend serves.

    Args:
        handlers: serve inference and health.
        responses: serve responses.
        compact: replaces items by a summary.
        stored: serve responses that were stored.
        conversations: serve conversations that clients manage.
        completions: serve chat completions that were stored.
        files: serve files.
        batches: serve batches.
        webhooks: serve webhook endpoints.
        organization: serves administration.
        metrics: whether there is a route for metrics.
    """
    routes = handlers.routes(metrics=metrics)
    routes += responses.routes()
    routes += compact.routes()
    routes += stored.routes()
    routes += conversations.routes()
    routes += completions.routes()
    routes += files.routes()
    routes += batches.routes()
    routes += webhooks.routes()
    routes.append(Route("GET", "/openapi.json", OPERATOR, OpenApi(routes).serve))
    routes += organization.routes()
    return RouteTable(routes)


def routed_app(table: RouteTable, authenticator: Authenticator, inference: Inference) -> RoutedApp:
    """Return the application that serves these routes to callers whose key allows it."""

    def admit(scope: Scope, request: RequestRecord, needs: tuple[KeyScope, ...]) -> None:
        credential = authenticator.read(scope["headers"])
        request.principal = authenticator.admit(credential)
        inference.limits_of(request)
        request.principal.require(*needs)

    return RoutedApp(table, admit)
