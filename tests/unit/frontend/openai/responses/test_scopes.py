"""What is stored is read and written by keys with scopes for it."""

import asyncio
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.settings import ConversationSettings, StateSettings
from baton.tenancy.directory.principal import LOCAL, Principal
from baton.tenancy.records.tenants import Scope
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.responses.parse import read_response
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.responses.storing import TurnContext, read_context

AWAY = StateSettings(url=SecretStr("postgresql://baton@127.0.0.1:1/none"))
STORE = ConversationStore(Database(AWAY), ConversationSettings(enabled=True))
"""Nothing is read from it."""


def caller(*scopes: Scope) -> Principal:
    key = msgspec.structs.replace(LOCAL.key, scopes=(Scope.INFERENCE, *scopes))
    return msgspec.structs.replace(LOCAL, key=key)


def context(who: Principal, **fields: Any) -> TurnContext:
    body = read_response(msgspec.json.encode({"model": "m", "input": "hi", **fields}))
    return asyncio.run(read_context(STORE, body, who))


def test_a_response_is_stored_only_where_the_key_may() -> None:
    assert context(caller(Scope.STATE_WRITE)).stored
    assert not context(caller(Scope.STATE_READ)).stored
    assert not context(caller(Scope.STATE_WRITE), store=False).stored


@pytest.mark.parametrize(
    ("fields", "scopes", "missing"),
    [
        ({"store": True}, (Scope.STATE_READ,), Scope.STATE_WRITE),
        ({"previous_response_id": "resp_1"}, (Scope.STATE_WRITE,), Scope.STATE_READ),
        ({"conversation": "conv_1"}, (Scope.STATE_WRITE,), Scope.STATE_READ),
        ({"conversation": "conv_1"}, (Scope.STATE_READ,), Scope.STATE_WRITE),
    ],
)
def test_what_needs_a_scope_is_refused_without_it(
    fields: dict[str, Any], scopes: tuple[Scope, ...], missing: Scope
) -> None:
    with pytest.raises(BatonError, match=f"'{missing}'") as caught:
        context(caller(*scopes), **fields)
    assert caught.value.reason is Reason.PERMISSION_DENIED


def test_every_route_of_what_is_stored_needs_a_scope() -> None:
    routes = ConversationHandlers.__new__(ConversationHandlers).routes()
    for route in (*routes, *StoredResponses(None).routes()):
        if route.template.endswith("/messages"):
            assert route.needs == (Scope.INFERENCE,)  # and the others, as a response
        else:
            expected = Scope.STATE_READ if route.method == "GET" else Scope.STATE_WRITE
            assert route.needs == (expected,), route
