"""From a body to a response that can begin: what it asks for, and what it continues."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from baton.conversations.managed.conversations import locked
from baton.conversations.records import StateScope, StoredPath
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.tenancy.directory.principal import Principal
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.compaction.history import with_summary
from services.frontend.openai.responses.compaction.management import threshold_of
from services.frontend.openai.responses.input.sealing import ItemSeal, ItemSeals
from services.frontend.openai.responses.parse import (
    ResponseRequest,
    read_response,
    response_request,
)
from services.frontend.openai.responses.schema import ResponseBody
from services.frontend.openai.responses.storing import (
    TurnContext,
    read_context,
    read_path,
    scope_of,
)
from services.frontend.requests.refusals import unsupported

_STATELESS = (
    "the summary is written after the answer, and belongs to a stored response: set `store` to "
    "true, or call /v1/responses/compact"
)


class PreparedResponse(NamedTuple):
    """A response before it is admitted."""

    data: bytes
    """The body as it was sent."""
    body: ResponseBody
    asked: ResponseRequest
    context: TurnContext


class ResponsePreparer:
    """Reads bodies, and what they continue.

    Args:
        seals: of reasoning and summaries.
        store: of responses; None: nothing is stored.
        max_messages: the most items.
        unknown: whether fields that are not known are ignored.
    """

    def __init__(
        self,
        seals: ItemSeals,
        store: ConversationStore | None,
        max_messages: int,
        *,
        unknown: bool,
    ) -> None:
        self._seals = seals
        self._store = store
        self._max_messages = max_messages
        self._unknown = unknown

    async def prepare(self, data: bytes, names: RequestNames, who: Principal) -> PreparedResponse:
        """Return the response of a body.

        Args:
            data: the body.
            names: of the request.
            who: the caller.

        Raises:
            BatonError: the body is invalid, or what it continues does not exist.
        """
        body = read_response(data, unknown=self._unknown)
        prepared = await self.of_body(data, body, names, who)
        if threshold_of(body.context_management) is not None and not prepared.context.stored:
            raise unsupported("context_management", why=_STATELESS)
        return prepared

    async def of_body(
        self, data: bytes, body: ResponseBody, names: RequestNames, who: Principal
    ) -> PreparedResponse:
        """Return the response of a decoded body; arguments and errors as of `prepare`."""
        context = await self._with_summary(await read_context(self._store, body, who), who)
        if body.background and not context.stored:
            raise unsupported("background", why="the response must be stored: set `store` to true")
        if not names.execution_id:
            names = names._replace(execution_id=context.execution_id)
        asked = await self.request(body, names, who, context)
        return PreparedResponse(data, body, asked, context)

    async def request(
        self, body: ResponseBody, names: RequestNames, who: Principal, context: TurnContext
    ) -> ResponseRequest:
        """Return the request of a body and of what it continues.

        Raises:
            BatonError: as of `response_request`; UNAVAILABLE: as of `seal`.
        """
        given = body.input if isinstance(body.input, list) else ()
        seal = await self._seals.needed(who.tenant.id, body.include, [*context.items, *given])
        asked = response_request(body, names, self._max_messages, seal, context.items)
        return replace(asked, note=context.note)

    async def history(self, path: StoredPath, who: Principal) -> TurnContext:
        """Return what is before a place, with the last summary of it.

        Raises:
            BatonError: UNAVAILABLE.
        """
        assert self._store is not None, "there is a path"
        scope = scope_of(who)
        context = await read_path(self._store, scope, path, stored=True, compacts=True)
        return await self._with_summary(context, who)

    async def seal(self, who: Principal) -> ItemSeal:
        """Return the seal of a caller's tenant.

        Raises:
            BatonError: UNAVAILABLE: its secret is not known yet, and etcd is unavailable.
        """
        return await self._seals.of(who.tenant.id)

    async def _with_summary(self, context: TurnContext, who: Principal) -> TurnContext:
        if not context.found:
            return context
        seal = await self.seal(who)
        items, note = with_summary(context.items, context.ids, context.found, seal)
        return replace(context, items=items, note=note)

    async def path(self, scope: StateScope, response: str) -> StoredPath | None:
        """Return the path of a response; None: nothing is stored.

        Raises:
            BatonError: NOT_FOUND, UNAVAILABLE.
        """
        return None if self._store is None else await self._store.path(scope, response)


@contextmanager
def one_turn(prepared: PreparedResponse) -> Iterator[None]:
    """Refuse a turn while another one of the same version runs, at any frontend."""
    _, body, asked, context = prepared
    try:
        yield
    except BatonError as error:
        named = asked.generation.execution_id == context.execution_id
        if error.reason is Reason.ALREADY_EXISTS and context.moves_on and named:
            raise locked(body.conversation_id, "has another response running") from error
        raise
