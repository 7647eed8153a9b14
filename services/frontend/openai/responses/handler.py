"""Handlers of `/v1/responses`."""

from functools import partial

from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits, HttpSettings
from services.frontend.generation.inference import Inference
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.body import ClientGoneError
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import names_of, read_body
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.responses.background.handlers import BackgroundResponses
from services.frontend.openai.responses.compaction.compactor import Compactor
from services.frontend.openai.responses.encoder import ResponseEncoder
from services.frontend.openai.responses.input.prepare import (
    PreparedResponse,
    ResponsePreparer,
    one_turn,
)
from services.frontend.openai.responses.parse import ResponseRequest
from services.frontend.openai.responses.storing import keep, name_response, room_of
from services.frontend.openai.responses.truncation import header
from services.frontend.openai.stream import Headers, answer_stream, answer_whole
from services.frontend.requests import record
from services.frontend.requests.request import PromptOptions, ResolvedRequest

_LEFT_OUT = b"x-baton-left-out"


class ResponsesHandlers:
    """Serve responses. One object per frontend, used on the loop's thread."""

    def __init__(
        self,
        inference: Inference,
        settings: HttpSettings,
        limits: FrontendLimits,
        preparer: ResponsePreparer,
        store: ConversationStore | None = None,
        background: BackgroundResponses | None = None,
        compactor: Compactor | None = None,
    ) -> None:
        """Serve responses.

        Args:
            inference: runs them.
            settings: bounds of bodies.
            limits: of requests.
            preparer: reads bodies.
            store: where they are stored; None: nowhere.
            background: those that go on without their clients; None: nothing is stored.
            compactor: writes summaries; None: nothing is stored.
        """
        self._inference = inference
        self._preparer = preparer
        self._store = store
        self._background = background
        self._compactor = compactor
        self._limits = limits
        self._settings = settings

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to items, as one body or as server-sent events."""
        data = await read_body(scope, receive, self._settings, self._limits)
        await self.respond(scope, send, data)

    async def respond(self, scope: Scope, send: Send, data: bytes) -> None:
        """Respond to a body.

        Raises:
            BatonError: before the response began.
            ClientGoneError: the client disconnected.
        """
        prepared = await self._read(scope, data)
        try:
            await self._serve(scope, send, data, prepared)
        except BatonError as error:
            if error.reason is not Reason.CONTEXT_LENGTH_EXCEEDED or self._compactor is None:
                raise
            async with WhileConnected(connection_of(scope)):
                shorter = await self._compactor.wait(prepared)
            if not shorter:
                raise
            await self._serve(scope, send, data, await self._read(scope, data))

    async def _serve(
        self, scope: Scope, send: Send, data: bytes, prepared: PreparedResponse
    ) -> None:
        with one_turn(prepared):
            if prepared.body.background and self._background is not None:
                headers = partial(_headers, prepared.asked)
                await self._background.begin(prepared, connection_of(scope), send, headers)
            else:
                with room_of(self._store, prepared.context, len(data)):
                    await self._respond(scope, send, prepared)

    async def _respond(self, scope: Scope, send: Send, prepared: PreparedResponse) -> None:
        _, body, asked, context = prepared
        batch, wire = GenerationBatch(), connection_of(scope)
        try:
            async with WhileConnected(wire):  # a long prompt may wait to be tokenized
                await batch.start(self._inference, [asked.generation], record.current())
            (generation,) = batch.generations
            encoder = ResponseEncoder(name_response(context, body), asked, generation.request)
            ending = partial(keep, self._store, context, encoder)
            headers = _headers(asked, generation.request)
            if body.stream:
                seconds = self._settings.keep_alive_seconds
                try:
                    await answer_stream(batch, encoder, wire, send, seconds, headers, ending)
                except ClientGoneError:
                    if encoder.cut_off():
                        await ending()
                    raise
            else:
                await answer_whole(batch, encoder, wire, send, headers, ending)
            if self._compactor is not None:
                self._compactor.after(prepared, encoder, record.current().principal)
        finally:
            batch.close()

    async def input_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the number of tokens that a response's input has."""
        data = await read_body(scope, receive, self._settings, self._limits)
        asked = (await self._read(scope, data)).asked.generation
        async with WhileConnected(connection_of(scope)):  # it may wait for others' prompts
            _, ids = await self._inference.tokenization.tokenize(
                asked.model, asked.prompt, record.current(), PromptOptions()
            )
        await send_json(send, {"object": "response.input_tokens", "input_tokens": len(ids)})

    async def _read(self, scope: Scope, data: bytes) -> PreparedResponse:
        return await self._preparer.prepare(data, names_of(scope), record.current().principal)

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        return [
            Route("POST", "/v1/responses", "responses", self.create),
            Route("POST", "/v1/responses/input_tokens", "tokenize", self.input_tokens),
        ]


def _headers(asked: ResponseRequest, request: ResolvedRequest) -> Headers:
    """Return the headers that say which tools and items are left out, as printable ASCII."""
    headers: Headers = ()
    if asked.tools.left_out:
        names = ", ".join(asked.tools.left_out).encode("ascii", "replace")
        headers = ((_LEFT_OUT, bytes(byte if 32 <= byte < 127 else 63 for byte in names)),)
    return (*headers, *header(request.dropped, asked.items, asked.note))
