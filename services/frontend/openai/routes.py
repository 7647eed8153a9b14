"""What stands behind each path. Errors are raised as BatonErrors; the middleware answers them."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from baton import __version__
from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits, HttpSettings
from baton.telemetry.context import request_id
from baton.telemetry.metrics import render
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.access.authenticator import Authenticator
from services.frontend.admin.routes import (
    OrganizationRoutes,
    find,
    is_organization,
    templates,
)
from services.frontend.generation.inference import Inference, stopping
from services.frontend.http.asgi import ASGIApp, Receive, Scope, Send
from services.frontend.http.body import header, read_json
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import (
    MethodNotAllowedError,
    encode,
    send_bytes,
    send_json,
)
from services.frontend.http.values import check_values
from services.frontend.models.model import Model
from services.frontend.openai.multi_prompt import Batch
from services.frontend.openai.openapi import Operation, document
from services.frontend.openai.request.parse import (
    EXECUTION_HEADER,
    RequestNames,
    chat_request,
    completion_requests,
    read_chat,
    read_completion,
    read_detokenize,
    read_tokenize,
    tokenized,
)
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import response_options, with_offsets
from services.frontend.openai.response.templates import CHAT, COMPLETION
from services.frontend.openai.stream import answer_stream, answer_whole
from services.frontend.requests import record
from services.frontend.requests.request import GenerationRequest, TextPrompt

_MODEL = "/v1/models/"


class Handlers:
    """Serve the endpoints of the HTTP API. One object per frontend, used on the loop's thread."""

    def __init__(
        self, inference: Inference, settings: HttpSettings, limits: FrontendLimits
    ) -> None:
        self._inference = inference
        self._limits = limits
        self._settings = settings
        self._unknown = settings.unknown_fields == "ignore"

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a conversation, as one body or as server-sent events."""
        body = read_chat(await self._read(scope, receive), unknown=self._unknown)
        requests = [chat_request(body, _names(scope), self._limits.max_messages)]
        await self._complete(body, requests, scope, send)

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Continue prompts, as one body or as server-sent events."""
        body = read_completion(await self._read(scope, receive), unknown=self._unknown)
        requests = completion_requests(body, _names(scope), self._limits.max_outputs)
        await self._complete(body, requests, scope, send)

    async def tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the token ids of a prompt or of messages, and the model's context."""
        body = read_tokenize(await self._read(scope, receive))
        prompt, options = tokenized(body, self._limits.max_messages)
        async with WhileConnected(connection_of(scope)):  # it may wait for others' prompts
            model, ids = await self._inference.tokenize(
                body.model or "", prompt, record.current(), options
            )
        answer = {"count": len(ids), "max_model_len": model.context_tokens, "tokens": ids}
        if body.return_token_strs:
            answer["token_strs"] = model.tokenizer.token_texts(ids)
        await send_json(send, answer)

    async def detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the text of token ids, special tokens included."""
        body = read_detokenize(await self._read(scope, receive))
        async with WhileConnected(connection_of(scope)):
            text = await self._inference.detokenize(
                body.model or "", body.tokens, record.current(), field="tokens"
            )
        await send_json(send, {"prompt": text})

    async def tokenizer_info(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return the texts of a model's special tokens under vLLM's names; `?model=` selects one of
        several models."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])
        model = await self._inference.tokenizing_model(given[0], TextPrompt(""), record.current())
        await send_json(send, model.tokenizer.info)

    async def version(self, _: Scope, __: Receive, send: Send) -> None:
        """Return the release."""
        await send_json(send, {"version": __version__})

    async def models(self, _: Scope, __: Receive, send: Send) -> None:
        """List the available models, each followed by its adapters."""
        who = record.current().principal
        listed = [
            _model(model, adapter)
            for model in self._inference.registry.listed()
            for adapter in ("", *sorted(model.adapters))
            if who.may_use(adapter or model.name)
        ]
        await send_json(send, {"object": "list", "data": listed})

    async def model(self, scope: Scope, _: Receive, send: Send) -> None:
        """Describe one model or adapter."""
        name = scope["path"].removeprefix(_MODEL)
        record.current().principal.require_model(name)
        found = self._inference.registry.get(name)
        await send_json(send, _model(found.model, found.adapter))

    async def live(self, _: Scope, __: Receive, send: Send) -> None:
        """Report that the process is alive."""
        await send_json(send, {"status": "ok"})

    async def ready(self, _: Scope, __: Receive, send: Send) -> None:
        """Report whether new requests are admitted: 503 while draining."""
        draining = self._inference.draining
        await send_json(
            send, {"status": "draining" if draining else "ok"}, 503 if draining else 200
        )

    async def metrics(self, _: Scope, __: Receive, send: Send) -> None:
        """Return the frontend's metrics in Prometheus' format, if `public.metrics` is on."""
        data, kind = render()
        await send_bytes(send, data, 200, ((b"content-type", kind.encode()),))

    def note_limits(self, request: record.RequestRecord) -> None:
        """Have the answer say what the limits of who asks leave."""
        self._inference.limits_of(request)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        settings = self._settings
        limit, seconds = settings.max_body_bytes, settings.body_timeout_seconds
        data = await read_json(scope, receive, limit, seconds)
        if connection_of(scope).late:
            raise stopping()
        check_values(data, self._limits.max_body_values)
        return data

    async def _complete(
        self,
        body: ChatBody | CompletionBody,
        requests: Sequence[GenerationRequest],
        scope: Scope,
        send: Send,
    ) -> None:
        template = CHAT if isinstance(body, ChatBody) else COMPLETION
        batch, wire = Batch(), connection_of(scope)
        try:
            async with WhileConnected(wire):  # a long prompt may wait to be tokenized
                await batch.start(self._inference, requests, record.current())
            resolved = [generation.request for generation in batch.generations]
            options = response_options(body, template, requests, resolved)
            if options.echo_logprobs:
                options = await with_offsets(options, resolved)
            if body.stream:
                chunks = ChunkEncoder(template, options, resolved)
                await answer_stream(batch, chunks, wire, send, self._settings.keep_alive_seconds)
            else:
                whole = WholeEncoder(template, options, resolved)
                await answer_whole(batch, whole, wire, send)
        finally:
            batch.close()


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    operation: str
    handler: ASGIApp
    needs: KeyScope | None = KeyScope.INFERENCE
    """What a key must be for; None: it is answered without one."""


class Routes:
    """Route a request to its handler by path and method: an ASGI application.

    Args:
        handlers: what answers.
        authenticator: tells who asks, before a body is read.
        organization: answers administration.
        metrics: there is a route for metrics.
    """

    def __init__(
        self,
        handlers: Handlers,
        authenticator: Authenticator,
        organization: OrganizationRoutes,
        *,
        metrics: bool,
    ) -> None:
        none = record.OPERATOR
        self._authenticator = authenticator
        self._organization = organization
        self._note_limits = handlers.note_limits
        self.one_model = _Route("GET", "list_models", handlers.model)
        self.by_path = {
            "/v1/chat/completions": _Route("POST", "chat", handlers.chat),
            "/v1/completions": _Route("POST", "text_completion", handlers.completions),
            "/v1/tokenize": _Route("POST", "tokenize", handlers.tokenize),
            "/tokenize": _Route("POST", "tokenize", handlers.tokenize),
            "/v1/detokenize": _Route("POST", "detokenize", handlers.detokenize),
            "/detokenize": _Route("POST", "detokenize", handlers.detokenize),
            "/tokenizer_info": _Route("GET", "tokenize", handlers.tokenizer_info),
            "/v1/models": _Route("GET", "list_models", handlers.models),
            "/version": _Route("GET", none, handlers.version),
            "/health": _Route("GET", none, handlers.ready, None),
            "/health/live": _Route("GET", none, handlers.live, None),
            "/health/ready": _Route("GET", none, handlers.ready, None),
        }
        self.by_path["/openapi.json"] = _Route("GET", none, self.openapi)
        self._openapi = b""
        if metrics:
            self.by_path["/metrics"] = _Route("GET", none, handlers.metrics, KeyScope.ADMIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        found = self.by_path.get(path) or (self.one_model if path.startswith(_MODEL) else None)
        if found is None:
            if is_organization(path):
                await self._administer(scope, receive, send)
                return
            raise BatonError(Reason.NOT_FOUND, f"there is nothing at {path[:200]}")
        request = record.current()
        request.route = _MODEL + "{model}" if found is self.one_model else path
        request.operation = found.operation
        allowed = found.method
        if method == allowed or (method, allowed) == ("HEAD", "GET"):
            if found.needs is not None:
                self._authenticate(scope, request, found.needs)
            await found.handler(scope, receive, send)
            return
        raise MethodNotAllowedError(path, method, "GET, HEAD" if allowed == "GET" else allowed)

    async def openapi(self, _: Scope, __: Receive, send: Send) -> None:
        """Return the OpenAPI document of this API, generated from the request types."""
        self._openapi = self._openapi or encode(document(self.operations()))
        await send_bytes(send, self._openapi, 200, ((b"content-type", b"application/json"),))

    def operations(self) -> list[Operation]:
        """Return all that there is, with the first sentence of what it does."""
        ways = {**self.by_path, _MODEL + "{model}": self.one_model}
        own = [
            Operation(path, way.method, _summary(way.handler), way.needs is None)
            for path, way in ways.items()
        ]
        return own + [
            Operation(path, method, _summary(handler)) for path, method, handler, _ in templates()
        ]

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found, request = find(scope["path"], scope["method"]), record.current()
        request.route, request.operation = found.template, "administration"
        self._authenticate(scope, request, *found.needs)
        await self._organization.answer(found, request.principal, scope, receive, send)

    def _authenticate(self, scope: Scope, request: record.RequestRecord, *needs: KeyScope) -> None:
        credential = self._authenticator.read(scope["headers"])
        request.principal = self._authenticator.admit(credential)
        self._note_limits(request)
        request.principal.require(*needs)


def _names(scope: Scope) -> RequestNames:
    return RequestNames(request_id.get(), header(scope, EXECUTION_HEADER))


def _summary(handler: object) -> str:
    return " ".join((inspect.getdoc(handler) or "").split())


def _model(model: Model, adapter: str) -> dict[str, Any]:
    """An adapter is a model whose parent is the one that it changes, as vLLM has it."""
    return {
        "id": adapter or model.name,
        "object": "model",
        "created": model.created_seconds,
        "owned_by": "baton",
        "parent": model.name if adapter else None,
        "max_model_len": model.context_tokens,
        "engine": model.engine or None,
        "dtype": model.dtype or None,
        "features": model.features,
        "deterministic": model.deterministic,
        "inexact_reason": model.inexact_reason or None,
        "exact_continuation": model.exact_continuation,
        "sampling_defaults": model.sampling_defaults,
    }
