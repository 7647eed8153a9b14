"""Continues a response that another frontend began, or says why it ends."""

from dataclasses import replace
from time import time
from typing import Any

import msgspec

from baton.conversations.background.events import events_from
from baton.conversations.background.records import ClaimedRun
from baton.conversations.background.store import BackgroundStore
from baton.conversations.records import StoredPath, Turn
from baton.errors import BatonError, Reason
from baton.request.stream_events import Started
from services.frontend.access.authenticator import Authenticator
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.http.responses import encode_line
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.background.folding import output_of
from services.frontend.openai.responses.background.kept import RunRequest, digest_of
from services.frontend.openai.responses.background.output import OutputPart, unpack_output
from services.frontend.openai.responses.background.run import BackgroundRun
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.input.prepare import ResponsePreparer
from services.frontend.openai.responses.output import CANCELLED
from services.frontend.openai.responses.parse import read_response
from services.frontend.openai.responses.storing import input_items, stored_turn
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import Fallback, ResolvedRequest, Resume

_MOST_ATTEMPTS = 20
_OPENING = 2
"""Events before those of an output."""


class Resumption:
    """Brings a response to where its last owner stored it.

    Args:
        inference: runs it.
        store: has what was generated.
        preparer: reads its body again.
        authenticator: knows whose it is.
    """

    def __init__(
        self,
        inference: Inference,
        store: BackgroundStore,
        preparer: ResponsePreparer,
        authenticator: Authenticator,
    ) -> None:
        self._inference = inference
        self._store = store
        self._preparer = preparer
        self._authenticator = authenticator

    async def start(self, run: BackgroundRun, own: RequestRecord, kept: RunRequest) -> Generation:
        """Return the generation of a response, attached to its run.

        Raises:
            BatonError: it cannot be continued, or not with the same tokens; or not now.
        """
        if run.cancelling:
            raise BatonError(Reason.CANCELLED, "the response was cancelled")
        if run.lease.attempt > _MOST_ATTEMPTS:
            raise _lost("too many frontends were lost while they ran it")
        left = kept.deadline - time()
        if left <= 0:
            raise BatonError(Reason.DEADLINE, "the request exceeded its deadline")
        own.principal = self._authenticator.recall(kept.key)
        pieces = await self._store.outputs(run.lease)
        begun = bool(pieces) and pieces[-1][0] >= _OPENING
        if begun and not kept.exact:  # clients saw its output
            raise _lost("no other one continues it with the same tokens")
        names = RequestNames(kept.request_id)
        prepared = await self._preparer.prepare(kept.body.encode(), names, own.principal)
        output = OutputPart()
        for _, packed in pieces:
            output.add(unpack_output(packed))
        generation = await self._inference.start(
            replace(
                prepared.asked.generation,
                model=kept.model,
                fallback=Fallback.NEVER,
                take_over=True,
                resume=None if kept.provided else Resume(output.token_ids, kept.seed, counted=True),
            ),
            own,
            left,
        )
        try:
            request = generation.request
            _check(request, kept, begun=begun)
            inputs = len(input_items(prepared.body.input))
            name = ResponseName(run.lease.id, kept.created, inputs, stored=True)
            told = replace(request, requested=kept.requested)
            run.attach(generation, ResponseEncoder(name, prepared.asked, told), prepared.context)
            if pieces:
                of = request.id, request.model.name, kept.seed, len(request.prompt)
                run.restore(Started(*of), output)
                if run.first != pieces[-1][0] + 1:
                    raise _lost("its events would be others")
        except BaseException:
            generation.close()
            raise
        return generation

    async def failed(
        self, run: BackgroundRun, claimed: ClaimedRun, kept: RunRequest, error: BatonError
    ) -> tuple[bytes, Turn]:
        """Return the last event of a response that does not continue, and what is stored of it.

        Raises:
            BatonError: UNAVAILABLE.
        """
        tenant, ident = run.lease.scope.tenant, run.lease.id
        events: list[bytes] = []
        while pieces := await self._store.pieces_from(tenant, ident, len(events)):
            events += events_from(pieces, len(events))
        run.begin_at(len(events))
        body: dict[str, Any] = msgspec.json.decode(claimed.body)
        body["output"] = output_of(events)
        kind = "incomplete" if run.cancelling else "failed"
        body["status"] = CANCELLED if run.cancelling else "failed"
        if not run.cancelling:
            code = error.reason.openai_code or "server_error"
            body["error"] = {"code": code, "message": error.message}
        event = {
            "type": f"response.{kind}",
            "sequence_number": len(events),
            "response": body,
        }
        last = b"event: response.%b\ndata: %b\n\n" % (kind.encode(), encode_line(event))
        sent = read_response(kept.body.encode(), unknown=True)
        path = await self._path(run, sent.previous_response_id)
        return last, stored_turn(ident, input_items(sent.input), dict(body), path)

    async def _path(self, run: BackgroundRun, previous: str | None) -> StoredPath | None:
        if not previous:
            return None
        try:
            return await self._preparer.path(run.lease.scope, previous)
        except BatonError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            return None


def _check(request: ResolvedRequest, kept: RunRequest, *, begun: bool) -> None:
    """Check that a request continues as it began.

    Raises:
        BatonError: STREAM_LOST: it does not, or it is not known.
    """
    if digest_of(request) != kept.digest:
        raise _lost("its model or its prompt is another one now")
    if begun and (request.body or not request.exact_continuation):
        raise _lost("no other one continues it with the same tokens")


def _lost(why: str) -> BatonError:
    return BatonError(
        Reason.STREAM_LOST, f"the frontend of this response was lost, and {why}: send it again"
    )
