"""/openapi.json: the HTTP API's document, generated from the types that decode bodies."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from baton import __version__
from baton.sampling import PARAMETERS, Limits
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.responses import encode, send_bytes
from services.frontend.http.routes import Route
from services.frontend.openai.request.field import Body, Field, Treatment
from services.frontend.openai.request.fields import fields_of
from services.frontend.openai.request.schema import CHAT, COMPLETION, DetokenizeBody, TokenizeBody
from services.frontend.openai.responses.compaction.body import COMPACT
from services.frontend.openai.responses.compaction.fields import COMPACT_FIELDS
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
from services.frontend.openai.responses.schema import RESPONSE

_REF = "#/components/schemas/{name}"
_COMPLETION = msgspec.defstruct(
    COMPLETION.__name__,
    [("prompt", Any, None)],  # which is decoded later
    bases=(COMPLETION,),
    kw_only=True,
    forbid_unknown_fields=True,
)
_BODIES: Mapping[str, type] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": _COMPLETION,
    "/v1/responses": RESPONSE,
    "/v1/responses/input_tokens": RESPONSE,
    "/v1/responses/compact": COMPACT,
    "/v1/tokenize": TokenizeBody,
    "/tokenize": TokenizeBody,
    "/v1/detokenize": DetokenizeBody,
    "/detokenize": DetokenizeBody,
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": ["string", "null"]},
                "param": {"type": ["string", "null"]},
            },
        }
    },
}
_IDS = {"type": "array", "items": {"type": "integer"}}
_PROMPT: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        _IDS,
        {"type": "array", "items": _IDS},
    ]
}
_IN_PATH = re.compile(r"{(\w+)}")


class OpenApi:
    """Serves the document of a set of routes, built on the first request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Keep the routes; those added later are included."""
        self._routes = routes
        self._document = b""

    async def serve(self, _: Scope, __: Receive, send: Send) -> None:
        """Return the OpenAPI document of this API, generated from the request types."""
        self._document = self._document or encode(document(self._routes))
        await send_bytes(send, self._document, 200, ((b"content-type", b"application/json"),))


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    refs, schemas = msgspec.json.schema_components(tuple(_BODIES.values()), ref_template=_REF)
    schemas[COMPLETION.__name__]["properties"]["prompt"] = dict(_PROMPT)
    for body, fields in (
        (CHAT, fields_of(Body.CHAT)),
        (COMPLETION, fields_of(Body.COMPLETION)),
        (RESPONSE, RESPONSE_FIELDS),
        (COMPACT, COMPACT_FIELDS),
    ):
        _describe(schemas[body.__name__]["properties"], fields)
    schemas["Error"] = _ERROR
    error = {"$ref": _REF.format(name="Error")}
    of_path = dict(zip(_BODIES, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        content = of_path.get(one.path, {"type": "object"})
        said: dict[str, Any] = {
            "summary": one.description,
            "responses": {
                "200": {"description": "The response."},
                "default": {
                    "description": "An error in OpenAI's format.",
                    "content": {"application/json": {"schema": error}},
                },
            },
        }
        if one.method == "POST":
            said["requestBody"] = {"content": {"application/json": {"schema": content}}}
        if names := _IN_PATH.findall(one.path):
            said["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        if not one.needs:
            said["security"] = []
        paths.setdefault(one.path, {})[one.method.lower()] = said
    return {
        "openapi": "3.1.0",
        "info": {"title": "Baton", "version": __version__},
        "paths": paths,
        "security": [{}, {"key": []}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(properties: dict[str, dict[str, Any]], fields: Iterable[Field]) -> None:
    """Add descriptions from the table of fields and the limits of parameters."""
    for field in fields:
        what = "" if field.treatment is Treatment.SERVED else f"{field.treatment.value}: "
        properties[field.name]["description"] = what + field.note
    for each in PARAMETERS:
        if each.name in properties and each.limits.items is None:
            properties[each.name] |= _bounds(each.limits)


def _bounds(limits: Limits) -> dict[str, float]:
    found: dict[str, float] = {}
    if limits.low is not None:
        found["exclusiveMinimum" if limits.above else "minimum"] = limits.low
    if limits.high is not None:
        found["maximum"] = limits.high
    return found
