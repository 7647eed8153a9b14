"""The table of routes: which route a path finds, and the values of its parameters."""

from typing import Any

import pytest

from baton.errors import BatonError, Reason
from services.frontend.http.routes import Route, RouteTable


async def nothing(*_: Any) -> None:
    """Do nothing."""


def table(*templates: str) -> RouteTable:
    return RouteTable(Route("GET", template, template, nothing) for template in templates)


TABLE = table(
    "/v1/models",
    "/v1/models/{model:path}",
    "/v1/files",
    "/v1/files/{file_id}",
    "/v1/files/{file_id}/content",
    "/v1/files/all/content",
    "/v1/{kind}",
)


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/v1/models", "/v1/models", []),
        ("/v1/models/", "/v1/models/{model:path}", [""]),
        ("/v1/models/org/name", "/v1/models/{model:path}", ["org/name"]),
        ("/v1/files/f-1", "/v1/files/{file_id}", ["f-1"]),
        ("/v1/files/f-1/content", "/v1/files/{file_id}/content", ["f-1"]),
        ("/v1/files/all/content", "/v1/files/all/content", []),
        ("/v1/other", "/v1/{kind}", ["other"]),
    ],
)
def test_a_path_finds_its_route(path: str, template: str, values: list[str]) -> None:
    routes, found = TABLE.find(path)
    assert routes["GET"].template == template
    assert found == values


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/",
        "/v1/files/",
        "/v2/models",
        "/v1/files/f/other",
        "/v1/files/f/content/",
    ],
)
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(BatonError) as caught:
        TABLE.find(path)
    assert caught.value.reason is Reason.NOT_FOUND


def test_one_path_has_a_route_per_method() -> None:
    routes = [Route(method, "/a/{b}", method, nothing) for method in ("GET", "POST")]
    assert [*RouteTable(routes).find("/a/1")[0]] == ["GET", "POST"]
    with pytest.raises(ValueError, match="two routes for GET"):
        RouteTable([*routes, Route("GET", "/a/{c}", "", nothing)])


@pytest.mark.parametrize(
    ("templates", "said"),
    [
        (
            ("/a/{b}", "/a/{c:path}"),
            r"/a/\{c:path\}: \{c:path\} matches the rest of the path, where",
        ),
        (("/a/{c:path}", "/a/{b}/d"), r"/a/\{b\}/d: \{b\} matches one segment, where another"),
        (("/a/{b:path}/c",), r"/a/\{b:path\}/c: a parameter with :path must be the last segment"),
    ],
)
def test_one_place_has_parameters_of_one_kind(templates: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        table(*templates)


def test_documents_show_a_parameter_without_its_kind() -> None:
    (route,) = table("/v1/models/{model:path}")
    assert route.path == "/v1/models/{model}"
    assert route.description == "Do nothing."
