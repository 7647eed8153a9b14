"""Handlers of `/v1/responses`."""

import time

from baton.settings import FrontendLimits, HttpSettings
from baton.telemetry.context import request_id
from services.frontend.generation.inference import Inference
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import names_of, read_body
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.parse import (
    ResponseRequest,
    read_response,
    response_request,
)
from services.frontend.openai.responses.schema import ResponseBody
from services.frontend.openai.responses.sealing import ReasoningSeals
from services.frontend.openai.stream import Headers, answer_stream, answer_whole
from services.frontend.requests import record
from services.frontend.requests.request import PromptOptions

_LEFT_OUT = b"x-baton-left-out"


class ResponsesHandlers:
    """Serve responses, none of which is stored. One object per frontend, used on the loop's
    thread."""

    def __init__(
        self,
        inference: Inference,
        settings: HttpSettings,
        limits: FrontendLimits,
        seals: ReasoningSeals,
    ) -> None:
        self._inference = inference
        self._seals = seals
        self._limits = limits
        self._settings = settings
        self._unknown = settings.unknown_fields == "ignore"

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to items, as one body or as server-sent events."""
        body, asked = await self._read(scope, receive)
        batch, wire = GenerationBatch(), connection_of(scope)
        try:
            async with WhileConnected(wire):  # a long prompt may wait to be tokenized
                await batch.start(self._inference, [asked.generation], record.current())
            (generation,) = batch.generations
            name = ResponseName(request_id.get(), int(time.time()))
            encoder = ResponseEncoder(name, asked, generation.request)
            headers = _headers(asked.tools.left_out)
            if body.stream:
                seconds = self._settings.keep_alive_seconds
                await answer_stream(batch, encoder, wire, send, seconds, headers)
            else:
                await answer_whole(batch, encoder, wire, send, headers)
        finally:
            batch.close()

    async def input_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the number of tokens that a response's input has."""
        _, read = await self._read(scope, receive)
        asked = read.generation
        async with WhileConnected(connection_of(scope)):  # it may wait for others' prompts
            _, ids = await self._inference.tokenization.tokenize(
                asked.model, asked.prompt, record.current(), PromptOptions()
            )
        await send_json(send, {"object": "response.input_tokens", "input_tokens": len(ids)})

    async def _read(self, scope: Scope, receive: Receive) -> tuple[ResponseBody, ResponseRequest]:
        data = await read_body(scope, receive, self._settings, self._limits)
        body = read_response(data, unknown=self._unknown)
        tenant = record.current().principal.tenant.id
        seal = await self._seals.needed(tenant, body.include, body.input)
        return body, response_request(body, names_of(scope), self._limits.max_messages, seal)

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        return [
            Route("POST", "/v1/responses", "responses", self.create),
            Route("POST", "/v1/responses/input_tokens", "tokenize", self.input_tokens),
        ]


def _headers(left_out: tuple[str, ...]) -> Headers:
    """Return the header that names the types of tools that are left out, as printable ASCII."""
    if not left_out:
        return ()
    names = ", ".join(left_out).encode("ascii", "replace")
    return ((_LEFT_OUT, bytes(byte if 32 <= byte < 127 else 63 for byte in names)),)
