"""docs/api.md, from the protos' comments and the frontend's routes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from baton.errors import Reason
from baton.tenancy.directory import directory
from baton.v1 import common_pb2, conversations_pb2, inference_pb2
from scripts.docs.table import code, table
from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.request.field import Field
from services.frontend.openai.request.fields import FIELDS
from services.frontend.openai.responses.compaction.fields import COMPACT_FIELDS
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.fields import RESPONSE_FIELDS
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.routes import route_table

PROTOS = Path(__file__).resolve().parents[2] / "protos"
INTRODUCTION = """# API

This page is the reference of Baton's two client APIs, OpenAI's HTTP API and gRPC, for authors of clients. The
frontend serves both from the same code. See also [errors](errors.md), [settings](configuration.md) and
[clients](clients.md).

## HTTP

Request bodies, responses and server-sent events follow OpenAI's reference, so OpenAI clients work with another
base URL. A field that is not supported is an error, which names the field.

Two headers identify a request:

- `x-request-id` names a request in logs, traces and the response's head. Several requests may have the same
  one, as proxies and tracing put one on several calls.
- `x-baton-execution-id` (gRPC: `context.execution_id`) claims an execution. While a request of the tenant with
  the same id runs, and for a minute after it finished, every frontend rejects another one with 409
  `already_exists` ([ADR 50](adr/0050-executions-are-claimed-by-a-field-of-their-own.md)).

The response's header `x-baton-model` names the model or adapter that answers, like `model` in its body: another
than the request's with an [alias](models.md#aliases), [`auto`](auto.md) or a [fallback](models.md#fallbacks). Of a
fallback, the body and each chunk also have `"baton": {"requested_model": "…"}`.

"""
FIELDS_TEXT = """
### Fields of completions

This table lists which fields of OpenAI's reference (openai-python 3.54) and vLLM 0.32 are supported. `null` is
the same as leaving a field out. A field that is not supported returns 400 `unsupported_parameter` with the
alternative below. Any other field returns 400 `invalid_value`, as with OpenAI; with `http.unknown_fields`
`ignore` it is ignored, as in vLLM.

"""
RESPONSES_TEXT = """
### Fields of responses

`/v1/responses` serves the same models as chat completions, from the same code: sampling, tools, structured output,
reasoning, limits and usage are the same. Input and output are lists of items. Send the items of a response back as
they came, with those that follow; or, where responses are [stored](conversations.md), send what follows and
`previous_response_id`.

The events of a stream and the complete response come from one list of items, so ids, order and contents are the same
in both. A stream ends with `response.completed`, `response.incomplete` or `response.failed`, and without `[DONE]`.
Tools that cannot run here (`web_search`, `mcp` and others) are left out of the prompt; the response names
them in `baton.left_out`, and its head in `x-baton-left-out`. A `tool_choice` that requires one is a 400. A tool in
a `namespace` has the name `namespace.name` for the model; calls return both parts.

A `custom` tool takes a text, not arguments: the model is shown a function with one argument, `input`, and the client
gets its text, as `custom_tool_call` in responses and as `custom` in chat completions. With `format` `grammar` the text
matches the `lark` or `regex` grammar, which is also part of the tool's description. Models that write calls as JSON
write the input as a string, so a grammar is translated to its escaped form. What cannot be translated is a 400 that
names it: `%ignore`, `%json`, `&`, `~`, special tokens, `\\p`, nested sets, lookarounds, and rules that refer to
themselves if several of their terminals have characters that JSON escapes. Workers without grammars and providers'
models take custom tools without a grammar only.

<a id="context-windows"></a>
With `truncation` `disabled`, the default, an input that does not fit into the model's context is a 400
`context_length_exceeded`. With `auto`, the oldest turns are left out, down to three quarters of the context: a turn
with its calls and their outputs, never `instructions` or messages of the system or developer. If the last turn alone
does not fit, its oldest calls are left out with their outputs. The cut depends on the history alone, and stays where
it is until the context is full again, so that the prompt's prefix and its KV are found for many turns. An output
without `max_output_tokens` has at least an eighth of the context. The response says what it did not see:
`input_transformations` has the number of items, about how many tokens, and whether [a summary](conversations.md#summaries)
has their place, and so has the header `x-baton-truncated`.

"""
COMPACT_TEXT = """
### Fields of compaction

`POST /v1/responses/compact` returns shorter items in place of those that it is sent: all messages of the system and
developer, the last messages of the user up to about a quarter of the model's context, and an item of type
`compaction`, in which the model's summary of all of them is sealed for the tenant. Send the items of `output` on as
input, with those that follow. In a prompt, the item is a question of the user, for a summary, and the summary as its
answer. The summary has at most 1,024 tokens, and calls no tools. The request has the limits, the budget and the
usage record of any other, with the operation `compaction`. What the model cannot take at once is a 400
`context_length_exceeded`. An item that was sealed for another tenant, is changed or cut off is a 400 that names its
`encrypted_content`.

"""
KEYS = """
## API keys

With `auth.mode` `keys`, every request needs an API key: HTTP `authorization: Bearer sk-baton-…`, gRPC metadata
`authorization`. This applies to calls, unary methods and Sessions; the frontend checks the key for each request
of a Session. The key determines tenant, project and tier. The tier limits a request's `PriorityClass`:
interactive for free, premium for pro and enterprise. [teams.md](teams.md) describes how to create keys. Health,
reflection and paths that do not exist need no key. The frontend rejects a request without a valid key before it
reads the body; over gRPC, once it has received the message.

| problem | HTTP | gRPC | message |
| --- | --- | --- | --- |
%s
HTTP and gRPC return the same messages. An unknown key and a wrong key are the same case: one look-up by sha256.
If a key names models and adapters, it can list and use only these; `/v1/models` and `ListModels` list no
others.

A key, its project and its tenant can have limits ([teams.md](teams.md#limits)). If requests per minute are
limited, every HTTP response to the key has OpenAI's `x-ratelimit-limit-requests`, `-remaining-requests` and
`-reset-requests`, and for tokens the same headers with `-tokens`. They describe the limit with the least
remaining. Generate and Chat return them in the response's head.

A request that exceeds a limit returns 429 `rate_limit_exceeded` with `retry-after` and `retry-after-ms`, over
gRPC RESOURCE_EXHAUSTED with RetryInfo and QuotaFailure (`subject` `tenant:acme`, `quota_metric`
`tokens_per_minute`, `quota_value`). Without these, and with `x-should-retry: false`, the request can never fit.
The prompts of one body are admitted together or not at all. 503 means that no router responded within a second.
"""
GRPC = """
## gRPC

The contract is `protos/baton/v1`; the tables below are its comments. The frontend also serves
`grpc.health.v1.Health`, and with `grpc.reflection` the reflection service (`grpc.reflection.v1` and `v1alpha`).
Set a deadline on the call; to cancel a request, cancel the call.
"""
LIMITS = """
## Limits

Limits bound the cost of a request before the frontend reads it, and an invalid request affects no other. The
error names the limit and, where possible, the field. For defaults, see [configuration.md](configuration.md).

| what | limit | HTTP | gRPC |
| --- | --- | --- | --- |
| head: target, header fields, metadata | `http.max_head_bytes`, `http.max_head_fields` (also for trailers); metadata 16 KiB | 431 `head_too_large` | `HEAD_TOO_LARGE` |
| time for a head, and for a body | `http.header_timeout_seconds`, `http.body_timeout_seconds`; `grpc.frame_seconds` | closed; 408 `request_timeout` | closed |
| body, message | `http.max_body_bytes`, `grpc.max_message_bytes` | 413 `body_too_large` | `BODY_TOO_LARGE` |
| values in it | `limits.max_body_values`, `limits.max_message_fields` | 413 `body_too_large` | `BODY_TOO_LARGE` |
| chunks of a body | 4,096; with more, at least 64 bytes each on average | 400 `malformed_body` | |
| chunk extensions, and trailers | `http.max_head_bytes` | 431 `head_too_large` | |
| pending requests on a connection or session | 16 behind the current one; `grpc.max_streams_per_connection`, `limits.max_session_requests` | 429 `rate_limit_exceeded` | the stream is rejected; `NO_CAPACITY` |
| messages, choices, prompts times choices | `limits.max_messages`, `limits.max_choices`, `limits.max_outputs` | 400 `invalid_value` | `INVALID_FIELD` |
| prompt and output | the model's context; `context_tokens` of key, project and tenant | 400 `context_length_exceeded` | `CONTEXT_LENGTH_EXCEEDED` |
| output so far of a resumed stream | its `max_tokens`, and the context | | `INVALID_FIELD` |
| long prompts that wait for tokenization | `limits.max_tokenizing` | 503 `overloaded` | `OVERLOADED` |
| concurrent requests | `limits.max_requests` | 503 `overloaded` | `OVERLOADED` |

The following are not supported, and the error states why:

- HTTP/0.9, and HTTP/1.1 without exactly one Host;
- a length together with chunks, malformed chunks, and content encodings;
- text that is not UTF-8, bodies that are not JSON, and messages that are not protobuf.

On one HTTP connection, n requests have n responses, in order ([ADR 57](adr/0057-framing-before-service.md)):

- The frontend ignores an offer to upgrade (`h2c`, `websocket`, `TLS/1.2`), with or without a body, and responds
  over HTTP/1.1. It rejects `CONNECT`.
- A body has exactly one `content-length`, or is `chunked`. Anything else, and anything that RFC 9112 calls
  malformed, is a 400 after the preceding responses. The frontend then closes the connection and reads nothing
  further.
- If a response starts before its request's body has arrived, as a 401 does, the frontend waits up to 2 s for the
  rest of a body of no more than 64 KiB. Otherwise, or if the client waits for `100 Continue`, the response has
  `connection: close`.
- An HTTP/1.0 client gets no chunks: the connection closes at the end of a stream. After a complete response it
  stays open only if the client sent `connection: keep-alive`.

"""
_BLOCK = re.compile(r"((?:^//[^\n]*\n)+)^(service|message|enum) (\w+) \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(
    r"((?: +//[^\n]*\n)+) +(?:rpc (\w+)\(([\w ]+)\) returns \(([\w ]+)\)"
    r"|((?:repeated |optional )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)|(\w+) = (\d+);|oneof (\w+))"
)


def page() -> str:
    """Return the page."""
    administration = OrganizationRoutes.__new__(OrganizationRoutes)
    responses = ResponsesHandlers.__new__(ResponsesHandlers)
    compact = CompactHandler.__new__(CompactHandler)
    stored = StoredResponses(None)
    completions = StoredCompletions.__new__(StoredCompletions)
    handlers = Handlers.__new__(Handlers)
    managed = ConversationHandlers.__new__(ConversationHandlers)
    files, batches = FileHandlers(None), BatchHandlers.__new__(BatchHandlers)
    hooks = WebhookHandlers.__new__(WebhookHandlers)
    routes = route_table(
        handlers,
        responses,
        compact,
        stored,
        managed,
        completions,
        files,
        batches,
        hooks,
        administration,
        metrics=True,
    )
    rows = [
        (
            code(f"{route.method} {route.path}"),
            " or ".join(map(code, route.needs)),
            route.description,
        )
        for route in routes
    ]
    parts = [
        INTRODUCTION,
        table(("route", "scope", "description"), rows),
        FIELDS_TEXT,
        table(("field", "request", "support", "details"), map(_field_row, FIELDS)),
        RESPONSES_TEXT,
        table(("field", "request", "support", "details"), map(_field_row, RESPONSE_FIELDS)),
        COMPACT_TEXT,
        table(("field", "request", "support", "details"), map(_field_row, COMPACT_FIELDS)),
        KEYS % _refusals(),
        LIMITS,
        GRPC,
    ]
    for module in (inference_pb2, conversations_pb2, common_pb2):
        parts += _proto((PROTOS / module.DESCRIPTOR.name).read_text())
    return "".join(parts)


def _field_row(field: Field) -> tuple[str, str, str, str]:
    accepted = ", ".join(code(json.dumps(value)) for value in field.nothing)
    support = field.treatment.value + (f", except {accepted}" if accepted else "")
    return code(field.name), field.body.value, support, field.note


def _refusals() -> str:
    """Return the rows of the reasons for which a key is rejected."""
    invalid, denied = Reason.INVALID_API_KEY, Reason.PERMISSION_DENIED
    rows = [
        ("no key, or not as Bearer", invalid, directory.NO_KEY),
        ("an unknown or wrong key", invalid, directory.UNKNOWN),
        ("an expired key", invalid, directory.EXPIRED),
        ("a revoked key", invalid, directory.REVOKED),
        (
            "the previous secret of a rotated key, after its grace period",
            invalid,
            directory.ROTATED,
        ),
        ("a key of a deleted service account", invalid, directory.DELETED),
        ("a key of an archived project", invalid, directory.ARCHIVED),
        ("a key of a disabled tenant", invalid, directory.DISABLED),
        (
            "a missing scope",
            denied,
            "the API key does not have the scope 'inference' that this request requires; …",
        ),
        (
            "another tenant in `context.tenant`, a body's `tenant` or `openai-organization`, another "
            "project in `openai-project`",
            denied,
            "tenant: the API key belongs to another tenant; omit the field",
        ),
        (
            "a model or adapter that the key does not permit",
            Reason.MODEL_NOT_ALLOWED,
            "the API key does not permit model '…'; …",
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
            head = ("method", "request", "response", "description")
            rows = [
                (code(rpc), code(request), code(answer), _text(text))
                for text, rpc, request, answer, *_ in _FIELD.findall(body)
            ]
        else:
            head = (
                ("field", "type", "description")
                if kind == "message"
                else ("value", "", "description")
            )
            rows = list(map(_field, _FIELD.findall(body)))
        yield table(head, rows) if rows else ""


def _field(found: tuple[str, ...]) -> tuple[str, str, str]:
    text, _, _, _, kind, field, _, value, _, oneof = found
    return code(field or value or oneof), code(kind) or ("one of" if oneof else ""), _text(text)


def _text(comment: str) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
