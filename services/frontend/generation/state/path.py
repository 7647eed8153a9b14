"""The path of a request, from its placements and the reports of workers."""

from baton.internal.v1 import router_pb2
from baton.usage.path import MAX_REASON, RequestPath
from baton.v1 import common_pb2
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import WorkerStream

_CLASSES: dict[int, str] = {
    common_pb2.PRIORITY_CLASS_PREMIUM: "premium",
    common_pb2.PRIORITY_CLASS_INTERACTIVE: "interactive",
    common_pb2.PRIORITY_CLASS_BATCH: "batch",
}


def priority_class_of(context: common_pb2.RequestContext) -> str:
    """Return the name of a request's priority class."""
    return _CLASSES.get(context.priority, "interactive")


class PathTracker:
    """Follows one request from placement to placement. Owned by its `RequestUsage`.

    Times are monotonic, in seconds.
    """

    __slots__ = (
        "_arrived",
        "_first",
        "_handover_seconds",
        "_kv_wait_seconds",
        "_placed_at",
        "_placement",
        "_placements",
        "_prefill_seconds",
        "_router_queue_seconds",
    )

    def __init__(self, arrived: float) -> None:
        self._arrived = self._placed_at = arrived
        self._first: Placement | None = None
        """The placement under which the first token came, or will come."""
        self._placement: Placement | None = None
        """The latest one."""
        self._placements = 0
        self._router_queue_seconds = self._kv_wait_seconds = self._handover_seconds = 0.0
        self._prefill_seconds: float | None = None

    def placed(self, placement: Placement, now: float, *, has_token: bool) -> None:
        """Record a placement."""
        self._placements += 1
        self._router_queue_seconds += placement.queued_seconds
        self._placement = placement
        if not has_token:
            self._first, self._placed_at = placement, now

    def handed_over(self, first_token_at: float | None, now: float) -> None:
        """Record that a decode worker has the KV that another worker computed."""
        if first_token_at is not None and self._placements == 1:
            self._handover_seconds = max(self._handover_seconds, now - first_token_at)

    def computed(self, stream: WorkerStream, queue_seconds: float) -> None:
        """Record the end of a stream that computed the prompt, and had its first token.

        Args:
            stream: the stream.
            queue_seconds: in its worker's queue, as far as reported.
        """
        if stream.first_at is None:
            return
        took = stream.first_at - stream.begun_at
        waited = min(took, stream.kv_wait_seconds)
        seconds = max(0.0, took - waited - queue_seconds)
        if self._prefill_seconds is None or seconds > self._prefill_seconds:
            self._prefill_seconds, self._kv_wait_seconds = seconds, waited

    def path(
        self, context: common_pb2.RequestContext, first_token_at: float | None, now: float
    ) -> RequestPath:
        """Return the path of the request, which ends now."""
        name = priority_class_of(context)
        first, last = self._first, self._placement
        if first is None or last is None:
            return RequestPath(priority_class=name)
        decision, decode = first.decision, last.decision.decode.instance_id
        prediction = decision.prediction
        predicted: dict[str, float | None] = {}
        if first.placed_by:
            parts = (
                prediction.queue_seconds,
                prediction.transfer_seconds,
                prediction.prefill_seconds,
            )
            total = self._placed_at - self._arrived + sum(parts)
            predicted = {
                "predicted_first_token_seconds": rounded(total),
                "predicted_queue_seconds": rounded(parts[0]),
                "predicted_transfer_seconds": rounded(parts[1]),
                "predicted_prefill_seconds": rounded(parts[2]),
                "predicted_token_seconds": rounded(prediction.token_seconds) or None,
                "target_first_token_seconds": rounded(decision.ttft_target_seconds) or None,
                "target_token_seconds": rounded(decision.itl_target_seconds) or None,
            }
        decoding = None
        if first_token_at is not None:
            decoding = rounded(max(0.0, now - first_token_at - self._handover_seconds))
        prefill = self._prefill_seconds
        return RequestPath(
            priority_class=name,
            router=first.placed_by,
            prefill_worker=decision.prefill.instance_id or decision.decode.instance_id,
            decode_worker=decode,
            kv_store=first.store,
            cache_tier=cache_tier(prediction),
            router_queue_seconds=rounded(self._router_queue_seconds),
            prefill_seconds=None if prefill is None else rounded(prefill),
            transfer_seconds=rounded(self._kv_wait_seconds + self._handover_seconds),
            decode_seconds=decoding,
            moves=self._placements - 1 or None,
            placement_reason=prediction.reason[:MAX_REASON],
            provider="",
            **predicted,
        )


def cache_tier(prediction: router_pb2.Prediction) -> str:
    """Return the slowest tier that has cached KV of a prompt; empty: none has."""
    if prediction.remote_tokens:
        return "remote"
    if prediction.local_tokens:
        return "store"
    return "engine" if prediction.engine_tokens else ""


def rounded(seconds: float) -> float:
    """Return whole microseconds; `round` takes twice as long."""
    return int(seconds * 1e6 + 0.5) / 1e6
