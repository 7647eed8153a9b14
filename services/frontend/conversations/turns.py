"""Runs the responses to messages in conversations for gRPC clients."""

import asyncio
from contextlib import ExitStack

import msgspec

from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.request.stream_events import Event, Finished, Started, event_to_proto
from baton.rpc.server.call import ServerCall
from baton.telemetry.context import request_id
from baton.tenancy.records.tenants import Scope
from baton.v1 import conversations_pb2
from services.frontend.conversations.messages import generation_of, response_body, with_options
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.grpc.streaming import follow_call, sending_head
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.compaction.compactor import Compactor
from services.frontend.openai.responses.encoder import ResponseEncoder
from services.frontend.openai.responses.input.prepare import (
    PreparedResponse,
    ResponsePreparer,
    one_turn,
)
from services.frontend.openai.responses.storing import keep, name_response, room_of, scope_of
from services.frontend.openai.responses.truncation import header
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request_id import identify


class MessageTurns:
    """Turns of conversations, each from a message to its end. One object per frontend.

    Args:
        operations: on conversations.
        inference: runs responses.
        preparer: reads what they are.
        store: where they are stored; None: nowhere.
        compactor: writes summaries after them; None: nothing is stored.
    """

    def __init__(
        self,
        operations: ConversationOperations,
        inference: Inference,
        preparer: ResponsePreparer,
        store: ConversationStore | None,
        compactor: Compactor | None,
    ) -> None:
        self._operations = operations
        self._inference = inference
        self._preparer = preparer
        self._store = store
        self._compactor = compactor

    async def run(
        self,
        request: conversations_pb2.SendMessageRequest,
        context: ServerCall,
        record: RequestRecord,
    ) -> None:
        """Answer a message.

        Raises:
            BatonError: it is rejected, or failed, or was not stored.
        """
        identity = identify(request.context.request_id, request_id.get())
        with ExitStack() as head:
            head.enter_context(sending_head(self._inference, context, record, identity))
            prepared, size = await self._prepare(request, record, identity)
            try:
                await self._serve(prepared, size, context, record, head)
                return
            except BatonError as error:
                if error.reason is not Reason.CONTEXT_LENGTH_EXCEEDED or self._compactor is None:
                    raise
                if not await self._compactor.wait(prepared):
                    raise
            prepared, size = await self._prepare(request, record, identity)
            await self._serve(prepared, size, context, record, head)

    async def _serve(
        self,
        prepared: PreparedResponse,
        size: int,
        context: ServerCall,
        record: RequestRecord,
        head: ExitStack,
    ) -> None:
        with one_turn(prepared), room_of(self._store, prepared.context, size):
            asked = prepared.asked.generation
            generation = await self._inference.start(asked, record, context.time_remaining())
            head.close()
            encoder = await self._follow(prepared, generation, context)
        if self._compactor is not None:
            self._compactor.after(prepared, encoder, record.principal)

    async def _prepare(
        self,
        request: conversations_pb2.SendMessageRequest,
        record: RequestRecord,
        identity: str,
    ) -> tuple[PreparedResponse, int]:
        """Return the response that a message asks for, and the bytes of its body."""
        self._operations.require_enabled()
        who, limits = record.principal, self._inference.limits
        who.require(Scope.STATE_READ)
        asked = generation_of(request, identity, limits.max_messages)
        body = response_body(request, asked, limits.max_body_values)
        await self._operations.add_model(scope_of(who), request.conversation_id, body)
        data = msgspec.json.encode(body)
        names = RequestNames(identity, request.context.execution_id)
        prepared = await self._preparer.prepare(data, names, who)
        return with_options(prepared, asked), len(data)

    async def _follow(
        self, prepared: PreparedResponse, generation: Generation, context: ServerCall
    ) -> ResponseEncoder:
        turn, resolved, asked = prepared.context, generation.request, prepared.asked
        encoder = ResponseEncoder(name_response(turn, prepared.body), asked, resolved)
        unseen = header(resolved.dropped, asked.items, asked.note)
        context.set_trailing_metadata(tuple((key.decode(), told.decode()) for key, told in unseen))
        end: list[conversations_pb2.SendMessageResponse] = []

        def take(events: list[Event]) -> bool:
            for event in events:
                encoder.take(0, event)
                if type(event) is Started:
                    event = msgspec.structs.replace(event, response_id=encoder.name.id)
                response = conversations_pb2.SendMessageResponse()
                event_to_proto(event, response)
                if type(event) is Finished:  # once it is stored
                    end.append(response)
                else:
                    context.send(response)
            return False

        try:
            await follow_call(generation, context, take)
        except asyncio.CancelledError:
            failure = context.failure
            left = isinstance(failure, BatonError) and failure.reason is Reason.CANCELLED
            if left and encoder.cut_off():
                await keep(self._store, turn, encoder)
            raise
        await keep(self._store, turn, encoder)
        for response in end:
            context.send(response)
        return encoder
