"""Ended requests that this router keeps on disk, with the decisions that it still knows."""

import msgspec

from baton.history.history import History
from baton.history.kept import KeptKind, KeptRequest
from baton.internal.v1 import router_pb2
from baton.telemetry.logs import get_logger
from baton.usage.record import decode, encode
from services.router.api.explain import Explainer

MAX_RECORD_BYTES = 64 * 1024
_MAX_ERROR = 500
"""Most characters of an error that are kept."""
_MAX_DECISIONS = 4
"""Most decisions of a request that are kept, the latest ones."""
_MAX_CANDIDATES = 8
"""Most candidates of a decision that are kept: the chosen one, and those with the best scores."""

log = get_logger(__name__)


class RequestHistory:
    """Keeps ended requests, and finds them again. Lives on the event loop.

    Args:
        explainer: explains this router's decisions.
        history: where requests are kept; None: nowhere.
    """

    def __init__(self, explainer: Explainer, history: History | None) -> None:
        self._explainer = explainer
        self._history = history

    def keep(self, ended: router_pb2.KeepRequest) -> None:
        """Keep a request; one that is malformed is dropped, and logged."""
        if self._history is None:
            return
        try:
            if len(ended.record) > MAX_RECORD_BYTES:
                raise ValueError(f"a record of {len(ended.record)} bytes")
            kind, record = KeptKind(ended.kind), decode(ended.record)
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("router.history.refused", error=str(error))
            return
        explanations = self._explainer.decisions(record.request_id, _MAX_DECISIONS)
        for one in explanations:
            del one.candidates[_MAX_CANDIDATES:]
        self._history.keep(
            KeptRequest(
                kind=kind,
                record=record,
                error=ended.error[:_MAX_ERROR],
                explanations=tuple([one.SerializeToString() for one in explanations]),
            )
        )

    async def add_to(self, response: router_pb2.ExplainResponse, request_id: str) -> None:
        """Add the kept requests with an id to a response, and what of them cannot be read."""
        if self._history is None:
            return
        try:
            found = await self._history.find(request_id)
        except OSError as error:
            response.kept_error = f"history.path cannot be read: {error.strerror or error}"
            return
        if found.damaged:
            lines = "line is" if found.damaged == 1 else "lines are"
            response.kept_error = f"{found.damaged} {lines} damaged, probably by a crash"
        for kept in found.kept:
            into = response.kept.add()
            into.ended.kind, into.ended.error = kept.kind.value, kept.error
            into.ended.record = encode(kept.record)
            for one in kept.explanations:
                into.explanations.add().MergeFromString(one)
