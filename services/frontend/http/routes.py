"""Routes of every HTTP API: one table of path templates, and the application that serves it."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from baton.errors import BatonError, Reason
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import ASGIApp, Receive, Scope, Send
from services.frontend.http.responses import MethodNotAllowedError
from services.frontend.requests import record

_REST = ":path}"
"""Ends a parameter that matches the rest of a path, including slashes, as in `{model:path}`."""
_MAX_SHOWN = 200

Admit = Callable[[Scope, record.RequestRecord, tuple[KeyScope, ...]], None]
"""Identifies the caller, and raises a BatonError if the key has none of the scopes."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path.

    Args:
        method: in capitals; GET also serves HEAD.
        template: the path; `{name}` matches one segment that is not empty, `{name:path}` all that
            follow. Handlers find their values in `scope["path_params"]`, in this order.
        operation: its name in logs and metrics.
        handler: sends the response.
        needs: scopes of which the key must have one; empty: no key is needed.
        documented: the function whose docstring says what it does; None: the handler.
    """

    method: str
    template: str
    operation: str
    handler: ASGIApp
    needs: tuple[KeyScope, ...] = (KeyScope.INFERENCE,)
    documented: Callable[..., object] | None = None

    @property
    def path(self) -> str:
        """The template as shown in documents: without `:path`."""
        return self.template.replace(_REST, "}")

    @property
    def description(self) -> str:
        """What it does, on one line."""
        return " ".join((inspect.getdoc(self.documented or self.handler) or "").split())


@dataclass(slots=True)
class _Node:
    """The possible continuations of a path prefix."""

    segments: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    routes: dict[str, Route] = field(default_factory=dict)
    """Routes by method, if the path may end here."""
    takes_rest: bool = False


class RouteTable:
    """Routes by path and method. A literal segment takes precedence over a parameter."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Build the table.

        Raises:
            ValueError: two have the same method and path, or paths that match differently in one
                place.
        """
        self._routes = tuple(routes)
        self._plain: dict[str, dict[str, Route]] = {}
        self._root = _Node()
        for route in self._routes:
            known = self._methods(route.template)
            if route.method in known:
                raise ValueError(f"two routes for {route.method} {route.template}")
            known[route.method] = route

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find(self, path: str) -> tuple[dict[str, Route], list[str]]:
        """Return the routes of a path by method, and the values of its parameters in order.

        Raises:
            BatonError: NOT_FOUND.
        """
        routes = self._plain.get(path)
        if routes is not None:
            return routes, []
        values: list[str] = []
        node = self._root
        segments = path.split("/")
        for at, segment in enumerate(segments):
            following = node.segments.get(segment)
            if following is None:
                following = node.parameter
                if following is None or not (segment or following.takes_rest):
                    break
                if following.takes_rest:
                    return following.routes, [*values, "/".join(segments[at:])]
                values.append(segment)
            node = following
        else:
            if node.routes:
                return node.routes, values
        raise BatonError(Reason.NOT_FOUND, f"path {path[:_MAX_SHOWN]} does not exist")

    def _methods(self, template: str) -> dict[str, Route]:
        if "{" not in template:
            return self._plain.setdefault(template, {})
        node = self._root
        for segment in template.split("/"):
            if node.takes_rest:
                raise ValueError(f"{template}: a parameter with :path must be the last segment")
            if not segment.startswith("{"):
                node = node.segments.setdefault(segment, _Node())
                continue
            takes_rest = segment.endswith(_REST)
            if node.parameter is None:
                node.parameter = _Node(takes_rest=takes_rest)
            node = node.parameter
            if node.takes_rest is not takes_rest:
                kinds = "one segment", "the rest of the path"
                raise ValueError(
                    f"{template}: {segment} matches {kinds[takes_rest]}, where another route has a "
                    f"parameter that matches {kinds[not takes_rest]}; use one kind in both"
                )
        return node.routes


class RoutedApp:
    """An ASGI application that serves each request by its route.

    Args:
        table: the routes.
        admit: called before the handler reads a body, if a route needs a key.
    """

    def __init__(self, table: RouteTable, admit: Admit) -> None:
        self._table = table
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        routes, values = self._table.find(path)
        route = routes.get("GET" if method == "HEAD" else method)
        request = record.current()
        known = route or next(iter(routes.values()))
        request.route, request.operation = known.path, known.operation
        if route is None:
            allowed = [*routes, *(("HEAD",) if "GET" in routes else ())]
            raise MethodNotAllowedError(path, method, ", ".join(allowed))
        if route.needs:
            self._admit(scope, request, route.needs)
        scope["path_params"] = values
        await route.handler(scope, receive, send)
