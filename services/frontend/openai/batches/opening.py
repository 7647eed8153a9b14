"""Composes a frontend's files, batches and runner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from baton.batches.estimates import CompletionEstimates
from baton.batches.forecasts import ForecastStore
from baton.batches.lines import LineStore
from baton.batches.retention import keep_forgetting
from baton.batches.store import BatchStore
from baton.files.opening import open_files
from baton.files.store import FileStore
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from baton.process.background import cancel_all, start_background
from baton.settings import BatchSettings, FrontendSettings, StartupError
from services.frontend.access.authenticator import Authenticator, tenant_weight
from services.frontend.generation.accounting.metering import Metering
from services.frontend.generation.inference import Inference
from services.frontend.openai.batches.checking.input import InputCheck
from services.frontend.openai.batches.checking.lines import InputLimits
from services.frontend.openai.batches.checking.models import check_model, is_away
from services.frontend.openai.batches.running.deadlines import DeadlineWatch
from services.frontend.openai.batches.running.ending import BatchEnding
from services.frontend.openai.batches.running.execution import LineExecution
from services.frontend.openai.batches.running.line import LineRunner
from services.frontend.openai.batches.running.results import ResultWriter
from services.frontend.openai.batches.running.runner import BatchRunner
from services.frontend.openai.responses.input.prepare import ResponsePreparer
from services.frontend.placement.line_room import LineRoom


@dataclass(frozen=True, slots=True)
class Batches:
    """Files and batches of a frontend."""

    files: FileStore
    store: BatchStore
    estimates: CompletionEstimates
    runner: BatchRunner | None
    """None: other frontends run lines."""
    deadlines: DeadlineWatch
    results: ResultWriter
    settings: BatchSettings

    def wake(self) -> None:
        """Look for work at once."""
        if self.runner is not None:
            self.runner.wake()


@asynccontextmanager
async def open_batches(
    settings: FrontendSettings,
    inference: Inference,
    preparer: ResponsePreparer,
    authenticator: Authenticator,
    metering: Metering,
    frontend: str,
    room: LineRoom,
) -> AsyncIterator[Batches | None]:
    """Open them until the block ends; None if there is no place for files.

    Args:
        settings: of the frontend.
        inference: runs lines.
        preparer: reads bodies of responses.
        authenticator: knows whose they are.
        metering: records usage.
        frontend: the id of this frontend, the owner of what it claims.
        room: of lines at once.

    Raises:
        StartupError: there is no database, or files.url cannot be used.
    """
    if not settings.files.url:
        yield None
        return
    if not settings.state.url.get_secret_value():
        raise StartupError(
            "files.url needs a database: set state.url (BATON_STATE_URL), and create its schema "
            "with `baton db upgrade`."
        )
    own = settings.batches
    state = settings.state.model_copy(update={"connections": own.connections})
    async with (
        Database(state, "batches", BATCHES) as database,
        open_files(database, settings.files) as files,
    ):
        await database.wait_tried()
        store = BatchStore(database, frontend, own.lease_seconds)
        lines = LineStore(database, frontend, own.lease_seconds)
        results = ResultWriter(lines, metering)
        weight_of = partial(tenant_weight, authenticator)
        estimates = CompletionEstimates(store, own.rate_seconds, weight_of, settings.teams.top)
        deadlines = DeadlineWatch(ForecastStore(database), estimates)
        runner = None
        if own.max_running:
            unknown = settings.http.unknown_fields == "ignore"
            execution = LineExecution(inference, preparer, settings.limits, unknown=unknown)
            limits = InputLimits(
                own.max_lines,
                settings.http.max_body_bytes,
                settings.limits.max_body_values,
                unknown,
            )
            runner = BatchRunner(
                store,
                lines,
                LineRunner(execution, lines, results, authenticator, metering, own.retries),
                InputCheck(store, files, partial(check_model, inference), authenticator, limits),
                BatchEnding(store, files, metering),
                deadlines,
                room,
                partial(is_away, inference),
            )
        forgetting = start_background(keep_forgetting(store, own.retention_days), "old batches")
        try:
            yield Batches(files, store, estimates, runner, deadlines, results, own)
        finally:
            await cancel_all([forgetting])
            if runner is not None:
                await runner.close()
