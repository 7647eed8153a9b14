"""The usage record of a request: begun on admission, ended once for any outcome."""

from collections.abc import Callable
from time import monotonic, time

from msgspec.structs import asdict, replace

from baton.errors import BatonError, Reason
from baton.request.prices import Price
from baton.spool.spool import Spool
from baton.tenancy.directory.principal import Principal
from baton.usage.path import MAX_REASON, RequestPath
from baton.usage.record import LOST, RecordIds, UsageRecord
from baton.v1 import common_pb2
from services.frontend.generation.accounting.progress import Progress
from services.frontend.generation.state.path import priority_class_of, rounded
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest

_RETRY_SECONDS = 5.0


def no_budget(_: Principal) -> bool:
    """Return whether a caller's spending is limited, in a frontend without keys."""
    return False


def cost_of(progress: Progress, price: Price | None) -> int | None:
    """Return the cost, in nano-dollars, of a request that ends now; None if it had no price.

    Only delivered output is charged: a request without output tokens costs nothing, not even for
    its prompt.
    """
    if price is None:
        return None
    if progress.usage.first_token_seconds is None:
        return 0
    usage = progress.usage.total(progress.output_tokens)
    return price.cost(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)


OnEnded = Callable[[UsageRecord, str], bool]
"""Called with the record of each ended request, and the message of the error that ended it. Returns
whether the request failed or was slow."""


class Metering:
    """Makes usage records and adds them to the spool. One per frontend, on the event loop.

    Args:
        spool: stores the records; None: usage is not recorded.
        on_ended: also receives the records.
        frontend: this instance's id.
        has_budget: whether a caller's spending is limited; then only recorded requests run.
    """

    def __init__(
        self,
        spool: Spool | None,
        on_ended: OnEnded,
        frontend: str,
        has_budget: Callable[[Principal], bool] = no_budget,
    ) -> None:
        self._spool = spool
        self._on_ended = on_ended
        self._frontend = frontend
        self._has_budget = has_budget
        self._ids = RecordIds()

    def check(self, principal: Principal) -> None:
        """Check that a caller's request may run: it is recorded, or need not be.

        Raises:
            BatonError: OVERLOADED.
        """
        if self._spool is not None and self._spool.full and self._has_budget(principal):
            raise BatonError(
                Reason.OVERLOADED,
                "this frontend cannot store more usage records, and requests with a budget need "
                "one; retry later",
                retry_after=_RETRY_SECONDS,
            )

    def begin(
        self, request: ResolvedRequest, asked: RequestRecord, arrived: float
    ) -> "RequestMeter":
        """Return the meter of a request that begins. Its usage is recorded if the spool has space.

        Args:
            request: the request.
            asked: its caller and operation.
            arrived: when it arrived, by the monotonic clock.
        """
        context, who = request.context, asked.principal
        batch = context.priority == common_pb2.PRIORITY_CLASS_BATCH
        tier = who.tenant.tier.value
        began_ms = int((time() - (monotonic() - arrived)) * 1e3)
        record = UsageRecord(
            id=asked.usage_id or self._ids.draw(began_ms),
            request_id=request.id,
            tenant=context.tenant,
            project=who.project.id,
            key=who.key.id,
            tier=tier,
            batch=batch,
            priority_class=priority_class_of(context),
            model=context.model,
            weights=request.model.weights,
            adapter=context.adapter,
            operation=asked.operation,
            frontend=self._frontend,
            began_ms=began_ms,
            prompt_tokens=len(request.prompt),
            outcome=LOST,
        )
        spool = None if asked.on_usage is not None else self._spool
        if spool is not None and not spool.begin(record, may_be_lost=not asked.usage_id):
            spool = None
        meter = RequestMeter(spool, self._on_ended, record, arrived, asked.rule)
        meter.on_usage = asked.on_usage
        return meter

    @property
    def records(self) -> bool:
        """Whether usage is recorded."""
        return self._spool is not None

    def add(self, record: UsageRecord, on_written: Callable[[], None]) -> None:
        """Record the usage of a request that `RequestRecord.on_usage` received.

        Args:
            record: its record. If it is added twice, it counts once.
            on_written: called once the record survives this process, or cannot be written in time.
        """
        if self._spool is not None:
            self._spool.add(record, on_written)


class RequestMeter:
    """The record of one request, from start to end. Owned by its `Generation`."""

    __slots__ = ("_arrived", "_on_ended", "_record", "_rule", "_spool", "notable", "on_usage")

    def __init__(
        self,
        spool: Spool | None,
        on_ended: OnEnded,
        record: UsageRecord,
        arrived: float,
        rule: str | None = None,
    ) -> None:
        self._spool = spool
        self._on_ended = on_ended
        self._record: UsageRecord | None = record
        """None once it has ended."""
        self._arrived = arrived
        self._rule = rule
        """The rule of `auto` that matched; empty: none did; None: the client named the model."""
        self.notable = False
        """Whether it failed or was slow, once it has ended."""
        self.on_usage: Callable[[UsageRecord], None] | None = None
        """Receives the record in place of a spool."""

    @property
    def recorded(self) -> bool:
        """Whether its usage is recorded: the end of its response waits for that."""
        return self._spool is not None

    def discard(self) -> None:
        """Record nothing: the request continues at another frontend, which records all of it."""
        record, self._record = self._record, None
        if record is not None and self._spool is not None:
            self._spool.discard()

    def end(
        self,
        progress: Progress,
        outcome: str,
        cost: int | None,
        path: RequestPath,
        error: str = "",
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Record how the request ended; later calls have no effect.

        Args:
            progress: its outputs and usage.
            outcome: `ok`, or the error's reason.
            cost: in nano-dollars; None if it had no price.
            path: where it ran.
            error: message of the error that ended it.
            on_written: called once the record survives this process, or cannot be written in time.
        """
        record, self._record = self._record, None
        if record is None:
            return
        usage = progress.usage.total(progress.output_tokens)
        first_token = progress.usage.first_token_seconds
        seconds = monotonic() - self._arrived
        ended = replace(
            record,
            ended_ms=record.began_ms + int(seconds * 1e3),
            seconds=rounded(seconds),
            first_token_seconds=None if first_token is None else rounded(first_token),
            queue_seconds=rounded(usage.queue_seconds),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            kv_byte_seconds=usage.kv_byte_seconds or None,
            finish_reasons=tuple(
                [
                    "" if output.reason is None else output.reason.value
                    for output in progress.outputs
                ]
            ),
            outcome=outcome,
            cost_nanodollars=cost,
            **asdict(path),
        )
        if self._rule is not None:
            ended = replace(ended, placement_reason=_with_rule(self._rule, path.placement_reason))
        if self._spool is not None:
            self._spool.end(ended, on_written)
        elif self.on_usage is not None:
            self.on_usage(ended)
        self.notable = self._on_ended(ended, error)


def _with_rule(rule: str, reason: str) -> str:
    """Return the reason of a placement, after why rules of `auto` chose the model."""
    why = f"auto chose the model by rule {rule}" if rule else "auto chose the model, by no rule"
    return f"{why}; {reason}"[:MAX_REASON] if reason else why
