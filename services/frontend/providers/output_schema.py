"""The JSON schema of a request's output, for upstreams that take one."""

import json
from typing import Any

from baton.errors import BatonError
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import GenerationRequest


def output_schema(request: GenerationRequest) -> tuple[str, dict[str, Any]]:
    """Return the client's name of the field, and the schema; `{"type": "object"}`: any object.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: it is another grammar.
    """
    grammar, field = request.sampling.grammar, request.names.get("grammar", "grammar")
    if grammar is None or grammar.kind != "json_schema":
        raise _no_schema(field)
    try:
        schema = json.loads(grammar.text)
    except (ValueError, RecursionError):
        raise _no_schema(field) from None
    if not isinstance(schema, dict):
        raise _no_schema(field)
    return field, schema


def _no_schema(field: str) -> BatonError:
    return unsupported(field, why="the model's provider takes JSON schemas only")
