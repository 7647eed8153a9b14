"""docs/api.md, from the protos' comments and the frontend's routes."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from baton.v1 import common_pb2, inference_pb2
from scripts.docs.table import code, table
from services.frontend.openai.routes import Handlers, Routes

PROTOS = Path(__file__).resolve().parents[2] / "protos"
INTRODUCTION = """# API

Both surfaces are served by the frontend, from the same code. Errors are in [errors.md](errors.md), limits in
[configuration.md](configuration.md), clients in [clients.md](clients.md).

## HTTP

OpenAI's API: bodies, answers and server-sent events are those of OpenAI's reference, so its clients work with
another base URL. Parameters that are not supported are refused by name.

"""
GRPC = """
## gRPC

The contract is `protos/baton/v1`; the tables below are its comments. `grpc.health.v1.Health` and reflection
(`grpc.reflection`) are served too. A deadline is the call's, cancelling is closing the call.
"""
_BLOCK = re.compile(r"((?:^//[^\n]*\n)+)^(service|message|enum) (\w+) \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(
    r"((?: +//[^\n]*\n)+) +(?:rpc (\w+)\((\w+)\) returns \(([\w ]+)\)"
    r"|((?:repeated |optional )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)|(\w+) = (\d+);|oneof (\w+))"
)


def page() -> str:
    """Return the page."""
    routes = Routes(Handlers.__new__(Handlers))
    rows = [
        (code(f"{route.method} {path}"), inspect.getdoc(route.handler) or "")
        for path, route in {**routes.by_path, "/v1/models/{model}": routes.one_model}.items()
    ]
    parts = [INTRODUCTION, table(("route", "what it does"), rows), GRPC]
    for module in (inference_pb2, common_pb2):
        parts += _proto((PROTOS / module.DESCRIPTOR.name).read_text())
    return "".join(parts)


def _proto(source: str) -> Iterator[str]:
    for comment, kind, name, body in _BLOCK.findall(source):
        yield f"\n### {name}\n\n{_text(comment)}\n\n"
        if kind == "service":
            head = ("method", "request", "answer", "meaning")
            rows = [
                (code(rpc), code(request), code(answer), _text(text))
                for text, rpc, request, answer, *_ in _FIELD.findall(body)
            ]
        else:
            head = ("field", "type", "meaning") if kind == "message" else ("value", "", "meaning")
            rows = list(map(_field, _FIELD.findall(body)))
        yield table(head, rows) if rows else ""


def _field(found: tuple[str, ...]) -> tuple[str, str, str]:
    text, _, _, _, kind, field, _, value, _, oneof = found
    return code(field or value or oneof), code(kind) or ("one of" if oneof else ""), _text(text)


def _text(comment: str) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
