"""What is stored of a chat completion, and when."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID

import msgspec

from baton.conversations.completions.records import StoredCompletion, completion_text
from baton.conversations.completions.store import CompletionStore
from baton.conversations.ids import draw_block
from baton.conversations.records import StateScope
from baton.errors import BatonError
from baton.request.stream_events import Event
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.openai.metadata import check_metadata
from services.frontend.openai.request.schema import ChatBody, MessageBody
from services.frontend.openai.response.encoder import WholeEncoder
from services.frontend.openai.responses.storing import NOTHING_STORED, limits_of, scope_of
from services.frontend.openai.stream import EventEncoder
from services.frontend.requests.refusals import unsupported


class KeptCompletion:
    """A chat completion that is stored once it has ended, before its client is told so.

    A completion that failed, or whose client left, is not stored.

    Args:
        store: where.
        scope: whose.
        body: its request, with metadata within the limits.
    """

    def __init__(self, store: CompletionStore, scope: StateScope, body: ChatBody) -> None:
        self._store = store
        self._scope = scope
        self._metadata = check_metadata(body.metadata)
        self._messages = body.messages or ()
        self._ident: UUID = draw_block(int(time.time() * 1000))
        self._failed = False

    @property
    def id(self) -> str:
        """Its id: clients choose `x-request-id`, and must not choose the id of a row."""
        return completion_text(self._ident)

    async def keep(self, whole: WholeEncoder) -> None:
        """Store it.

        Raises:
            BatonError: UNAVAILABLE.
        """
        if self._failed:
            return
        body = whole.body()
        completion = StoredCompletion(
            self._ident,
            body["model"],
            self._metadata,
            msgspec.json.encode(_listed(self._messages)).decode(),
            msgspec.json.encode(body).decode(),
        )
        await self._store.keep(self._scope, completion)

    def room(self, size: int) -> AbstractContextManager[None]:
        """Reserve space for it, if it may have to wait for the database.

        Raises:
            BatonError: UNAVAILABLE: there is none.
        """
        pending = self._store.pending
        return nullcontext() if pending is None else pending.room(size)

    def fail(self) -> None:
        """Record that it failed after it began."""
        self._failed = True


class KeptChunks:
    """Encodes the events of a stream, and collects them as a whole response.

    Args:
        chunks: encodes them.
        whole: collects them.
        kept: what is stored.
    """

    def __init__(self, chunks: EventEncoder, whole: WholeEncoder, kept: KeptCompletion) -> None:
        self._chunks = chunks
        self._whole = whole
        self._kept = kept

    def take(self, prompt: int, event: Event) -> bytes:
        """Add an event of a prompt, and return its chunks."""
        self._whole.take(prompt, event)
        return self._chunks.take(prompt, event)

    def end(self) -> bytes:
        """Return the last events of the stream."""
        return self._chunks.end()

    def failed(self, error: BatonError) -> bytes:
        """Return the last event of a stream that failed after it began."""
        self._kept.fail()
        return self._chunks.failed(error)


async def kept_completion(
    store: CompletionStore | None, body: ChatBody, who: Principal
) -> KeptCompletion | None:
    """Return what is stored of a chat completion; None: it is not to be stored.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: nothing can be stored; PERMISSION_DENIED: the key may not
            store; INVALID_FIELD: of its metadata; INSUFFICIENT_QUOTA: the tenant has stored as
            much as it may; UNAVAILABLE.
    """
    if not body.store:
        return None
    if store is None:
        raise unsupported("store", why=f"{NOTHING_STORED}; send false, or omit it")
    who.require(KeyScope.STATE_WRITE)
    await store.storage.check_bytes(who.tenant.id, limits_of(who))
    return KeptCompletion(store, scope_of(who), body)


def _listed(messages: Sequence[MessageBody]) -> list[dict[str, Any]]:
    """Return messages without the fields that they do not have."""
    return [
        {name: value for name, value in msgspec.to_builtins(message).items() if value is not None}
        for message in messages
    ]
