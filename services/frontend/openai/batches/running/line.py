"""Runs a claimed line to its result, or gives it back."""

from typing import NamedTuple

import msgspec

from baton.batches.lines import LineStore
from baton.batches.records import ClaimedLine, LineResult, LineState
from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from baton.usage.record import UsageRecord
from services.frontend.access.authenticator import Authenticator, tenant_weight
from services.frontend.generation.accounting.metering import Metering
from services.frontend.metrics import LINES_ENDED
from services.frontend.openai.batches.endpoints import OPERATIONS
from services.frontend.openai.batches.running.execution import LineExecution
from services.frontend.openai.batches.running.outputs import (
    answered,
    refused,
    request_name,
    runs_again,
    waits,
)
from services.frontend.openai.batches.running.results import ResultWriter
from services.frontend.requests import record
from services.frontend.requests.request_id import identify

_WAIT_SECONDS = 2.0
_MOST_WAIT_SECONDS = 60.0

log = get_logger(__name__)


class _Ended(NamedTuple):
    """How the request of a line ended."""

    output: str
    error: BatonError | None
    usage: list[UsageRecord]


class LineRunner:
    """Runs lines. One per frontend, on the event loop.

    Args:
        execution: of their requests.
        lines: the store.
        results: writes results.
        authenticator: knows whose they are.
        metering: records usage.
        retries: times that a line runs again.
    """

    def __init__(
        self,
        execution: LineExecution,
        lines: LineStore,
        results: ResultWriter,
        authenticator: Authenticator,
        metering: Metering,
        retries: int,
    ) -> None:
        self._execution = execution
        self._lines = lines
        self._results = results
        self._authenticator = authenticator
        self._metering = metering
        self._retries = retries

    def weight(self, key: str) -> int:
        """Return the weight of the tenant of a key; 1 if the key is not valid any more."""
        return tenant_weight(self._authenticator, key)  # lines without a valid key fail at once

    async def run(self, line: ClaimedLine, *, urgent: bool) -> None:
        """Run a line; return once its result is written, or it is given back.

        Args:
            line: the line.
            urgent: whether it runs as interactive requests do.

        Raises:
            BatonError: UNAVAILABLE: it could not be given back.
        """
        if line.failures > self._retries:
            ended = _Ended("", _lost(line), [])
        else:
            ended = await self._run(line, urgent)
        error = ended.error
        if error is not None and waits(error):
            seconds = min(error.retry_after or _WAIT_SECONDS, _MOST_WAIT_SECONDS)
            await self._release(line, seconds, failed=False)
            return
        if error is not None and runs_again(error) and line.failures < self._retries:
            await self._release(line, _WAIT_SECONDS, failed=True)
            return
        if not await self._results.write(self._result(line, ended)):
            LINES_ENDED.labels("lost").inc()
            return
        LINES_ENDED.labels("answered" if error is None else "failed").inc()

    async def _release(self, line: ClaimedLine, seconds: float, *, failed: bool) -> None:
        LINES_ENDED.labels("returned").inc()
        await self._lines.release(line, seconds, failed=failed)

    async def _run(self, line: ClaimedLine, urgent: bool) -> _Ended:
        """Run the request of a line, with a record of its own."""
        name = request_name(line.batch.id, line.number)
        own = record.begin("batch")
        own.operation, own.route = OPERATIONS[line.batch.endpoint], line.batch.endpoint
        usage: list[UsageRecord] = []
        own.on_usage = usage.append
        identify(name)
        output, status = "", "200"
        try:
            own.principal = self._authenticator.recall(line.batch.key)
            body = await self._execution.run(
                line.batch.endpoint, line.body.encode(), name, own, urgent=urgent
            )
            output = answered(name, line.custom_id, body)
        except BatonError as error:
            own.error, status = error, str(error.http_status)
        except Exception:
            log.exception("batches.line.failed")
            own.error, status = BatonError(Reason.INTERNAL, "internal error"), "500"
        finally:
            record.finish(own, status)
        return _Ended(output, own.error, usage)

    def _result(self, line: ClaimedLine, ended: _Ended) -> LineResult:
        usage = ended.usage
        if ended.error is not None:  # there is no output to pay for
            usage = [msgspec.structs.replace(one, cost_nanodollars=0) for one in usage]
        recorded = msgspec.json.encode(usage).decode() if usage and self._metering.records else ""
        if ended.error is not None:
            name = request_name(line.batch.id, line.number)
            output = refused(name, line.custom_id, ended.error)
            return LineResult(line, LineState.FAILED, output, recorded)
        counts = (
            sum(one.prompt_tokens or 0 for one in usage),
            sum(one.cached_tokens or 0 for one in usage),
            sum(one.output_tokens or 0 for one in usage),
        )
        return LineResult(line, LineState.ANSWERED, ended.output, recorded, *counts)


def _lost(line: ClaimedLine) -> BatonError:
    return BatonError(
        Reason.WORKER_LOST, f"the line did not end in {line.failures} attempts (batches.retries)"
    )
