"""The gRPC service of stored conversations and responses."""

from baton.conversations.records import StateScope
from baton.rpc.request_id import REQUEST_ID_KEY
from baton.rpc.server.call import ServerCall
from baton.telemetry.context import request_id
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Scope
from baton.v1 import conversations_pb2, conversations_pb2_grpc
from services.frontend.access.authenticator import Authenticator
from services.frontend.conversations.convert import (
    conversation_message,
    item_message,
    items_of,
    limit_of,
    response_message,
)
from services.frontend.conversations.turns import MessageTurns
from services.frontend.grpc.recording import CONVERSATIONS, OPERATIONS
from services.frontend.openai.conversations.bodies import (
    CreateConversation,
    checked_conversation,
    checked_items,
    checked_metadata,
)
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests.record import RequestRecord, begin
from services.frontend.requests.request_id import identify

_READ, _WRITE = Scope.STATE_READ, Scope.STATE_WRITE


class ConversationServicer(conversations_pb2_grpc.ConversationServiceServicer):
    """Serves conversations to gRPC clients. Errors are BatonErrors, as of InferenceServicer.

    Args:
        operations: on conversations.
        responses: that were stored.
        turns: respond to messages.
        authenticator: identifies callers.
        max_values: the most values in the items of a message.
    """

    def __init__(
        self,
        operations: ConversationOperations,
        responses: StoredResponses,
        turns: MessageTurns,
        authenticator: Authenticator,
        max_values: int,
    ) -> None:
        self._operations = operations
        self._responses = responses
        self._turns = turns
        self._authenticator = authenticator
        self._max_values = max_values

    async def CreateConversation(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.CreateConversationRequest, context: ServerCall
    ) -> conversations_pb2.CreateConversationResponse:
        who = self._caller("CreateConversation", context, _WRITE)
        items = items_of(request.items, self._max_values)
        body = checked_conversation(CreateConversation(items, dict(request.metadata)))
        found = await self._operations.create(who, body)
        return conversations_pb2.CreateConversationResponse(
            conversation=conversation_message(found)
        )

    async def GetConversation(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.GetConversationRequest, context: ServerCall
    ) -> conversations_pb2.GetConversationResponse:
        who = self._begin("GetConversation", context, _READ)
        found = await self._operations.managed.get(who, request.conversation_id)
        return conversations_pb2.GetConversationResponse(conversation=conversation_message(found))

    async def UpdateConversation(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.UpdateConversationRequest, context: ServerCall
    ) -> conversations_pb2.UpdateConversationResponse:
        who = self._begin("UpdateConversation", context, _WRITE)
        metadata = checked_metadata(dict(request.metadata))
        found = await self._operations.managed.update(who, request.conversation_id, metadata)
        return conversations_pb2.UpdateConversationResponse(
            conversation=conversation_message(found)
        )

    async def DeleteConversation(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.DeleteConversationRequest, context: ServerCall
    ) -> conversations_pb2.DeleteConversationResponse:
        who = self._begin("DeleteConversation", context, _WRITE)
        await self._operations.managed.delete(who, request.conversation_id)
        return conversations_pb2.DeleteConversationResponse()

    async def AddItems(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.AddItemsRequest, context: ServerCall
    ) -> conversations_pb2.AddItemsResponse:
        who = self._caller("AddItems", context, _WRITE)
        items = items_of(request.items, self._max_values)
        added = await self._operations.add(who, request.conversation_id, checked_items(items))
        return conversations_pb2.AddItemsResponse(items=map(item_message, added))

    async def ListItems(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.ListItemsRequest, context: ServerCall
    ) -> conversations_pb2.ListItemsResponse:
        who = self._begin("ListItems", context, _READ)
        bodies, more = await self._operations.page(
            who,
            request.conversation_id,
            request.after,
            limit_of(request.limit),
            newest_first=not request.ascending,
        )
        return conversations_pb2.ListItemsResponse(items=map(item_message, bodies), has_more=more)

    async def GetItem(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.GetItemRequest, context: ServerCall
    ) -> conversations_pb2.GetItemResponse:
        who = self._begin("GetItem", context, _READ)
        body = await self._operations.item(who, request.conversation_id, request.item_id)
        return conversations_pb2.GetItemResponse(item=item_message(body))

    async def DeleteItem(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.DeleteItemRequest, context: ServerCall
    ) -> conversations_pb2.DeleteItemResponse:
        who = self._begin("DeleteItem", context, _WRITE)
        found = await self._operations.delete_item(who, request.conversation_id, request.item_id)
        return conversations_pb2.DeleteItemResponse(conversation=conversation_message(found))

    # Sends instead of yielding, as `InferenceServicer` does.
    async def SendMessage(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.SendMessageRequest, context: ServerCall
    ) -> None:
        record = self._record("SendMessage", context, Scope.INFERENCE)
        await self._turns.run(request, context, record)

    async def GetResponse(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.GetResponseRequest, context: ServerCall
    ) -> conversations_pb2.GetResponseResponse:
        who = self._begin("GetResponse", context, _READ)
        found = await self._responses.get(who, request.response_id)
        return conversations_pb2.GetResponseResponse(response=response_message(found))

    async def CancelResponse(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.CancelResponseRequest, context: ServerCall
    ) -> conversations_pb2.CancelResponseResponse:
        who = self._begin("CancelResponse", context, _WRITE)
        ended = await self._responses.end(who, request.response_id)
        return conversations_pb2.CancelResponseResponse(response=response_message(ended))

    async def DeleteResponse(  # type: ignore[override]  # noqa: N802
        self, request: conversations_pb2.DeleteResponseRequest, context: ServerCall
    ) -> conversations_pb2.DeleteResponseResponse:
        who = self._begin("DeleteResponse", context, _WRITE)
        await self._responses.remove(who, request.response_id)
        return conversations_pb2.DeleteResponseResponse()

    def _begin(self, method: str, context: ServerCall, scope: Scope) -> StateScope:
        """Return whose rows a call reads and writes.

        Raises:
            BatonError: the call is rejected.
        """
        return scope_of(self._caller(method, context, scope))

    def _caller(self, method: str, context: ServerCall, scope: Scope) -> Principal:
        """Return who calls; errors as of `_begin`."""
        record = self._record(method, context, scope)
        context.send_head(((REQUEST_ID_KEY, identify(request_id.get())),))
        return record.principal

    def _record(self, method: str, context: ServerCall, scope: Scope) -> RequestRecord:
        """Return the record of a call, with its principal, who has a scope."""
        record = begin("grpc")
        record.operation = OPERATIONS[f"/{CONVERSATIONS}/{method}"]
        record.principal = self._authenticator.admit(self._authenticator.read(context.fields))
        record.principal.require(scope)
        return record
