"""docs/api.md, from the protos' comments and the frontend's routes."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

from baton.errors import Reason
from baton.tenancy import directory
from baton.v1 import common_pb2, inference_pb2
from scripts.docs.table import code, table
from services.frontend.auth.authenticator import NoAuthentication
from services.frontend.openai.request.fields import FIELDS, Field
from services.frontend.openai.routes import Handlers, Routes
from services.frontend.organization.routes import OrganizationRoutes, templates

PROTOS = Path(__file__).resolve().parents[2] / "protos"
INTRODUCTION = """# API

Both surfaces are served by the frontend, from the same code. Errors are in [errors.md](errors.md), settings in
[configuration.md](configuration.md), clients in [clients.md](clients.md).

## HTTP

OpenAI's API: bodies, answers and server-sent events are those of OpenAI's reference, so its clients work with
another base URL. Fields that are not supported are refused by name.

Two headers name a request. `x-request-id` is a name for logs, traces and the head of the answer: any number of requests may have
the same one, as proxies and tracing put one on several calls. `x-baton-execution-id` (gRPC: `context.execution_id`) claims an
execution: of a tenant's requests with the same one, a second one is 409 `already_exists` while the first one runs, and for a
minute after it finished, at all frontends ([ADR 50](adr/0050-executions-are-claimed-by-a-field-of-their-own.md)).

"""
FIELDS_TEXT = """
### Fields of completions

What OpenAI's reference (openai-python 3.54) and vLLM 0.32 have. `null` is as if a field were not there, and what is refused says
what to do instead (400 `unsupported_parameter`). Any other field is refused by name too (400 `invalid_value`), as OpenAI
does; with `http.unknown_fields` `ignore` it is ignored, as vLLM does.

"""
KEYS = """
## API keys

With `auth.mode` `keys` every request needs an API key: HTTP `authorization: Bearer sk-baton-…`, gRPC metadata
`authorization`, the same for calls, Sessions (each of whose requests is checked anew) and unary methods. Tenant, project and
tier are the key's; a request's `PriorityClass` is lowered to its tier's highest: interactive for free, premium
for pro and enterprise. [teams.md](teams.md) says how keys are made. Health, reflection and paths that do not exist need no key; what
needs one is answered before a body is read, over gRPC once the message has come.

| what is wrong | HTTP | gRPC | the sentence |
| --- | --- | --- | --- |
%s
The sentences are the same on both. Unknown and wrong is the same case: one look-up by sha256, whatever was sent. A key
may see and use only the models and adapters that it names, if it names any; `/v1/models` and `ListModels` list no others.

A key, its project and its tenant may have limits ([teams.md](teams.md#limits)). Every HTTP answer to such a key has OpenAI's
`x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests` where requests per minute are limited, and the same of
`-tokens`: those of the limit with the least left. Generate and Chat have them in the head of the answer. A request that does
not fit is 429 `rate_limit_exceeded` with `retry-after` and `retry-after-ms`, over gRPC RESOURCE_EXHAUSTED with RetryInfo and QuotaFailure
(`subject` `tenant:acme`, `quota_metric` `tokens_per_minute`, `quota_value`); without them, and with `x-should-retry: false`, it will never fit.
Prompts of one body fit together or not at all. 503 means that no router answered within a second.
"""
GRPC = """
## gRPC

The contract is `protos/baton/v1`; the tables below are its comments. `grpc.health.v1.Health` is served too,
and reflection (`grpc.reflection.v1` and `v1alpha`) where `grpc.reflection` is on. A deadline is the call's, cancelling is closing the call.
"""
LIMITS = """
## Limits

What a request may cost is bounded before it is read, and what is wrong with one touches no other: the error names the
limit, and where it can the field. Defaults are in [configuration.md](configuration.md).

| what | bound | HTTP | gRPC |
| --- | --- | --- | --- |
| a head: target, header fields, metadata | `http.max_head_bytes`, `http.max_head_fields` (which trailers have too); metadata 16 KiB | 431 `head_too_large` | `HEAD_TOO_LARGE` |
| time for a head, and for a body | `http.header_timeout_seconds`, `http.body_timeout_seconds`; `grpc.frame_seconds` | closed; 408 `request_timeout` | closed |
| a body, a message | `http.max_body_bytes`, `grpc.max_message_bytes` | 413 `body_too_large` | `BODY_TOO_LARGE` |
| what is in it | `limits.max_body_values`, `limits.max_message_fields` | 413 `body_too_large` | `BODY_TOO_LARGE` |
| its pieces | 4,096 chunks; of more, 64 bytes each on average | 400 `malformed_body` | |
| extensions of its chunks, and trailers | `http.max_head_bytes` | 431 `head_too_large` | |
| requests that wait on a connection or session | 16 behind the one that is answered; `grpc.max_streams_per_connection`, `limits.max_session_requests` | 429 `rate_limit_exceeded` | the stream is refused; `NO_CAPACITY` |
| messages, answers, prompts times answers | `limits.max_messages`, `limits.max_choices`, `limits.max_outputs` | 400 `invalid_value` | `INVALID_FIELD` |
| prompt and output | the model's context; `context_tokens` of key, project and tenant | 400 `context_length_exceeded` | `CONTEXT_LENGTH_EXCEEDED` |
| output so far, of a stream that is resumed | its `max_tokens`, and the context | | `INVALID_FIELD` |
| long prompts that wait to be tokenized | `limits.max_tokenizing` | 503 `overloaded` | `OVERLOADED` |
| requests at once | `limits.max_requests` | 503 `overloaded` | `OVERLOADED` |

Not served, with an error that says why: HTTP/0.9, HTTP/1.1 without one Host, a length beside chunks, malformed
chunks, texts that are not UTF-8, bodies that are no JSON, messages that are no protobuf, and encodings of bodies.

On one HTTP connection, n requests have n answers, in order ([ADR 57](adr/0057-framing-before-service.md)):
- An offer to upgrade (`h2c`, `websocket`, `TLS/1.2`) is ignored: the request is answered as HTTP/1.1, whatever its body
  is. `CONNECT` is refused.
- A body has a `content-length` or is `chunked`, once and alone; all else, and whatever RFC 9112 calls malformed, is a 400
  behind the answers before it, and then the connection ends. Nothing behind it is read.
- An answer that begins before its request's body has come, such as a 401, waits up to 2 s for what is left if the body
  has no more than 64 KiB. Otherwise, and where the client waits for `100 Continue`, it says `connection: close`.
- A client of HTTP/1.0 gets no chunks: a stream ends with its connection, and a whole answer keeps it only where the
  client sent `connection: keep-alive`.

"""
_BLOCK = re.compile(r"((?:^//[^\n]*\n)+)^(service|message|enum) (\w+) \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(
    r"((?: +//[^\n]*\n)+) +(?:rpc (\w+)\(([\w ]+)\) returns \(([\w ]+)\)"
    r"|((?:repeated |optional )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)|(\w+) = (\d+);|oneof (\w+))"
)


def page() -> str:
    """Return the page."""
    administration = OrganizationRoutes.__new__(OrganizationRoutes)
    routes = Routes(Handlers.__new__(Handlers), NoAuthentication(), administration, metrics=True)
    rows = [
        (
            code(f"{route.method} {path}"),
            code(route.needs) if route.needs else "",
            inspect.getdoc(route.handler) or "",
        )
        for path, route in {**routes.by_path, "/v1/models/{model}": routes.one_model}.items()
    ]
    rows += [
        (
            code(f"{method} {path}"),
            " or ".join(map(code, needs)),
            " ".join((inspect.getdoc(handler) or "").split()),
        )
        for path, method, handler, needs in templates()
    ]
    parts = [
        INTRODUCTION,
        table(("route", "scope", "what it does"), rows),
        FIELDS_TEXT,
        table(("field", "of", "what becomes of it"), map(_field_row, FIELDS)),
        KEYS % _refusals(),
        LIMITS,
        GRPC,
    ]
    for module in (inference_pb2, common_pb2):
        parts += _proto((PROTOS / module.DESCRIPTOR.name).read_text())
    return "".join(parts)


def _field_row(field: Field) -> tuple[str, str, str]:
    nothing = ", ".join(code(json.dumps(value)) for value in field.nothing)
    unless = f", unless it is {nothing}" if nothing else ""
    what = field.treatment.value
    return code(field.name), field.body.value, f"{what}{unless}: {field.note}"


def _refusals() -> str:
    """Return the rows of how requests are refused for their key."""
    invalid, denied = Reason.INVALID_API_KEY, Reason.PERMISSION_DENIED
    rows = [
        ("no key, or not as Bearer", invalid, directory.NO_KEY),
        ("an unknown or wrong key", invalid, directory.UNKNOWN),
        ("an expired key", invalid, directory.EXPIRED),
        ("a revoked key", invalid, directory.REVOKED),
        ("the secret before a rotation, after its time", invalid, directory.ROTATED),
        ("a key of a deleted service account", invalid, directory.DELETED),
        ("a key of an archived project", invalid, directory.ARCHIVED),
        ("a key of a disabled tenant", invalid, directory.DISABLED),
        ("a missing scope", denied, "the API key has not the scope 'inference' that this needs; …"),
        (
            "another tenant in `context.tenant`, a body's `tenant` or `openai-organization`, another "
            "project in `openai-project`",
            denied,
            "tenant: the API key is of another tenant; leave it out",
        ),
        (
            "a model or adapter that the key does not name",
            Reason.MODEL_NOT_ALLOWED,
            "the API key may not be used for the model '…'; …",
        ),
    ]
    return "".join(
        f"| {what} | {reason.http_status} `{reason.openai_code}` | `{reason.name}` | {sentence} |\n"
        for what, reason, sentence in rows
    )


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
