"""Records the end of calls of the public services."""

from baton.rpc.server.guard import CallEnd
from baton.rpc.server.methods import UNKNOWN_METHOD
from baton.telemetry.context import request_id
from services.frontend.requests.record import RequestRecord, current, finish
from services.frontend.requests.request_id import identify

INFERENCE = "baton.v1.InferenceService"
CONVERSATIONS = "baton.v1.ConversationService"

_METHODS = {
    INFERENCE: {
        "Generate": "text_completion",
        "Chat": "chat",
        "Tokenize": "tokenize",
        "Detokenize": "tokenize",
        "ListModels": "list_models",
    },
    CONVERSATIONS: {
        "CreateConversation": "conversations",
        "GetConversation": "conversations",
        "UpdateConversation": "conversations",
        "DeleteConversation": "conversations",
        "AddItems": "conversations",
        "ListItems": "conversations",
        "GetItem": "conversations",
        "DeleteItem": "conversations",
        "SendMessage": "responses",
        "GetResponse": "stored_responses",
        "CancelResponse": "stored_responses",
        "DeleteResponse": "stored_responses",
    },
}
OPERATIONS = {
    f"/{service}/{method}": operation
    for service, methods in _METHODS.items()
    for method, operation in methods.items()
}
"""The operation recorded for a call of each method."""


def record_call(end: CallEnd) -> None:
    """Record the end of a call, except for health and reflection: no client's requests."""
    operation = OPERATIONS.get(end.method)
    if operation is None and end.method != UNKNOWN_METHOD:
        return
    if not request_id.get():
        identify()
    try:
        record = current()
    except LookupError:  # rejected before any method
        record = RequestRecord("grpc")
        record.operation = operation or record.operation
    record.error = end.error
    finish(record, end.code.name)
