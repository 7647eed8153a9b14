"""Handlers of OpenAI's and vLLM's paths, and of health. Errors are raised as BatonErrors: the
middleware sends them."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from baton import __version__
from baton.conversations.completions.store import CompletionStore
from baton.settings import FrontendLimits, HttpSettings
from baton.telemetry.metrics import render
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.auto import AUTO
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.generation.inference import Inference
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_bytes, send_json
from services.frontend.http.routes import Route
from services.frontend.models.model import AutoModel, ResolvedModel, ServedModel
from services.frontend.openai.body import names_of, read_body
from services.frontend.openai.completions.storing import (
    KeptChunks,
    KeptCompletion,
    kept_completion,
)
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.request.decode import (
    read_chat,
    read_completion,
    read_detokenize,
    read_tokenize,
)
from services.frontend.openai.request.parse import (
    chat_request,
    completion_requests,
    tokenized,
)
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import response_options
from services.frontend.openai.response.templates import CHAT, COMPLETION
from services.frontend.openai.stream import (
    EventEncoder,
    answer_stream,
    answer_whole,
    no_ending,
)
from services.frontend.requests import record
from services.frontend.requests.request import GenerationRequest, TextPrompt


class Handlers:
    """Serve the endpoints of the HTTP API. One object per frontend, used on the loop's thread."""

    def __init__(
        self,
        inference: Inference,
        settings: HttpSettings,
        limits: FrontendLimits,
        completions: CompletionStore | None = None,
    ) -> None:
        """Serve the endpoints.

        Args:
            inference: runs requests.
            settings: bounds of bodies.
            limits: of requests.
            completions: where chat completions are stored; None: nowhere.
        """
        self._inference = inference
        self._completions = completions
        self._limits = limits
        self._settings = settings
        self._unknown = settings.unknown_fields == "ignore"

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a conversation, as one body or as server-sent events."""
        data = await self._read(scope, receive)
        body = read_chat(data, unknown=self._unknown)
        requests = [chat_request(body, names_of(scope), self._limits.max_messages)]
        kept = await kept_completion(self._completions, body, record.current().principal)
        with nullcontext() if kept is None else kept.room(len(data)):
            await self._complete(body, requests, scope, send, kept)

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Continue prompts, as one body or as server-sent events."""
        body = read_completion(await self._read(scope, receive), unknown=self._unknown)
        requests = completion_requests(body, names_of(scope), self._limits.max_outputs)
        await self._complete(body, requests, scope, send)

    async def tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the token ids of a prompt or of messages, and the model's context."""
        body = read_tokenize(await self._read(scope, receive))
        prompt, options = tokenized(body, self._limits.max_messages)
        async with WhileConnected(connection_of(scope)):  # it may wait for others' prompts
            model, ids = await self._inference.tokenization.tokenize(
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
            text = await self._inference.tokenization.detokenize(
                body.model or "", body.tokens, record.current(), field="tokens"
            )
        await send_json(send, {"prompt": text})

    async def tokenizer_info(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return the texts of a model's special tokens under vLLM's names; `?model=` selects one of
        several models."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])
        model = await self._inference.tokenization.model(given[0], TextPrompt(""), record.current())
        await send_json(send, model.tokenizer.info)

    async def version(self, _: Scope, __: Receive, send: Send) -> None:
        """Return the release."""
        await send_json(send, {"version": __version__})

    async def models(self, _: Scope, __: Receive, send: Send) -> None:
        """List the available models, each followed by its adapters, then the aliases and `auto`."""
        who, registry = record.current().principal, self._inference.registry
        policies = self._inference.policies
        listed = [
            self._described(model, adapter, who)
            for model in registry.listed()
            for adapter in ("", *sorted(model.adapters))
            if registry.aliases.permitted(who, adapter or model.name)
            and policies.permitted(who, model.name, adapter)
        ]
        listed += [
            self._alias(alias, registry.get(alias.main), who)
            for alias in registry.usable_aliases()
            if registry.aliases.permitted(who, alias.id) and policies.permitted(who, alias.main)
        ]
        if (auto := self._inference.auto_of(who)) is not None:
            listed.append(_auto(auto))
        await send_json(send, {"object": "list", "data": listed})

    async def model(self, scope: Scope, _: Receive, send: Send) -> None:
        """Describe one model or adapter."""
        (name,) = scope["path_params"]
        who, registry = record.current().principal, self._inference.registry
        policies = self._inference.policies
        if name == AUTO and (auto := self._inference.auto_of(who)) is not None:
            await send_json(send, _auto(auto))
            return
        registry.aliases.require(who, name)
        alias = registry.alias(name)
        if alias is not None:
            found = registry.get(alias.main)
            policies.require(who, found)
            await send_json(send, self._alias(alias, found, who))
            return
        found = registry.get(name)
        policies.require(who, found)
        await send_json(send, self._described(found.model, found.adapter, who))

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

    def routes(self, *, metrics: bool) -> list[Route]:
        """Return the routes of these handlers.

        Args:
            metrics: whether to include the route for metrics.
        """
        none, free = record.OPERATOR, ()
        found = [
            Route("POST", "/v1/chat/completions", "chat", self.chat),
            Route("POST", "/v1/completions", "text_completion", self.completions),
            Route("POST", "/v1/tokenize", "tokenize", self.tokenize),
            Route("POST", "/tokenize", "tokenize", self.tokenize),
            Route("POST", "/v1/detokenize", "detokenize", self.detokenize),
            Route("POST", "/detokenize", "detokenize", self.detokenize),
            Route("GET", "/tokenizer_info", "tokenize", self.tokenizer_info),
            Route("GET", "/v1/models", "list_models", self.models),
            Route("GET", "/version", none, self.version),
            Route("GET", "/health", none, self.ready, free),
            Route("GET", "/health/live", none, self.live, free),
            Route("GET", "/health/ready", none, self.ready, free),
            Route("GET", "/v1/models/{model:path}", "list_models", self.model),
        ]
        if metrics:
            found.append(Route("GET", "/metrics", none, self.metrics, (KeyScope.ADMIN,)))
        return found

    def _described(self, model: ServedModel, adapter: str, who: Principal) -> dict[str, Any]:
        """Describe a model or adapter to a caller."""
        return _model(model, adapter) | {
            "state": self._inference.state_of(model, adapter),
            "request_tokens": self._inference.request_tokens(model, adapter, who),
        }

    def _alias(self, alias: ModelAlias, found: ResolvedModel, who: Principal) -> dict[str, Any]:
        """Describe an alias as its main target, with what it means."""
        targets = [{"model": one.model, "weight": one.weight} for one in alias.targets]
        described = self._described(found.model, found.adapter, who)
        return described | {"id": alias.id, "targets": targets}

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        return await read_body(scope, receive, self._settings, self._limits)

    async def _complete(
        self,
        body: ChatBody | CompletionBody,
        requests: Sequence[GenerationRequest],
        scope: Scope,
        send: Send,
        kept: KeptCompletion | None = None,
    ) -> None:
        template = CHAT if isinstance(body, ChatBody) else COMPLETION
        batch, wire = GenerationBatch(), connection_of(scope)
        try:
            async with WhileConnected(wire):  # a long prompt may wait to be tokenized
                await batch.start(self._inference, requests, record.current())
            resolved = [generation.request for generation in batch.generations]
            options = await response_options(body, template, requests, resolved)
            if kept is not None:
                options = replace(options, id=kept.id)
            ending = no_ending
            if kept is not None or not body.stream:
                whole = WholeEncoder(template, options, resolved)
            if kept is not None:
                ending = partial(kept.keep, whole)
            if not body.stream:
                await answer_whole(batch, whole, wire, send, ending=ending)
                return
            chunks: EventEncoder = ChunkEncoder(template, options, resolved)
            if kept is not None:
                chunks = KeptChunks(chunks, whole, kept)
            seconds = self._settings.keep_alive_seconds
            await answer_stream(batch, chunks, wire, send, seconds, ending=ending)
        finally:
            batch.close()


def _model(model: ServedModel, adapter: str) -> dict[str, Any]:
    """Describe a model; an adapter is a model whose parent is its base model, as in vLLM."""
    return {
        "id": adapter or model.name,
        "object": "model",
        "created": model.created_seconds,
        "owned_by": model.owner,
        "provider": model.owner if model.provided is not None else None,
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


def _auto(auto: AutoModel) -> dict[str, Any]:
    """Describe `auto` by the models that it may choose."""
    return {
        "id": AUTO,
        "object": "model",
        "created": auto.created_seconds,
        "owned_by": "baton",
        "max_model_len": auto.context_tokens,
        "state": auto.state,
        "request_tokens": auto.request_tokens,
        "targets": [{"model": name} for name in auto.names],
    }
