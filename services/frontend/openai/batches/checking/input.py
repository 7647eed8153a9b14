"""Checks the input of a batch, and stores its lines."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from baton.batches.copying import LineRows
from baton.batches.records import BatchLease
from baton.batches.store import BatchStore
from baton.errors import BatonError, Reason
from baton.files.records import StoredFile, file_text
from baton.files.store import FileStore
from baton.process.ahead import ahead
from services.frontend.access.authenticator import Authenticator
from services.frontend.openai.batches.checking.errors import InputError, InputErrors, listed
from services.frontend.openai.batches.checking.lines import CheckedLine, InputLimits, LineChecker
from services.frontend.openai.batches.checking.models import ModelCheck, ModelChecks

_MOST_ATTEMPTS = 20
"""An input that stops its frontends is given up."""


class _Checked(NamedTuple):
    """The lines of a piece of the file."""

    lines: list[CheckedLine]
    rows: bytes


class InputCheck:
    """Checks inputs. One per frontend, on the event loop.

    Args:
        store: of batches.
        files: with the inputs.
        models: that there are.
        authenticator: knows whose they are.
        limits: of inputs.
    """

    def __init__(
        self,
        store: BatchStore,
        files: FileStore,
        models: ModelCheck,
        authenticator: Authenticator,
        limits: InputLimits,
    ) -> None:
        self._store = store
        self._files = files
        self._models = models
        self._authenticator = authenticator
        self._limits = limits

    async def run(self, lease: BatchLease) -> None:
        """Check a batch's input: then its lines run, or it has failed.

        Lines are checked on a thread. Meanwhile those before them are stored, in a transaction that
        is rolled back if there is an error.

        Raises:
            BatonError: UNAVAILABLE: another one checks it again.
        """
        batch = lease.batch
        checker, errors = LineChecker(batch.endpoint, self._limits), InputErrors()
        try:
            if lease.attempt > _MOST_ATTEMPTS:
                raise BatonError(Reason.INTERNAL, "the input could not be checked")
            models = ModelChecks(self._models, self._authenticator.recall(batch.key), errors)
            file = await self._files.get(batch.scope, file_text(batch.input_file))

            def details() -> tuple[int, str] | None:
                return None if checker.errors or errors else (checker.total, models.only)

            rows = self._rows(lease, file, checker, models)
            await self._store.start(lease, rows, details)
        except BatonError as error:
            if error.reason is Reason.UNAVAILABLE:
                raise
            errors.add(InputError(error.reason.openai_code, error.message))
        if found := listed(checker.errors, errors):
            said = [error._asdict() for error in found]
            await self._store.fail(lease, checker.total, msgspec.json.encode(said).decode())

    async def _rows(
        self, lease: BatchLease, file: StoredFile, checker: LineChecker, models: ModelChecks
    ) -> AsyncIterator[bytes]:
        """Yield rows of lines that are correct, until there is an error."""
        async with ahead(self._checked(lease, file, checker)) as pieces:
            async for checked in pieces:
                for line in checked.lines:
                    models.check(line)
                if not (checker.errors or models.errors):
                    yield checked.rows

    async def _checked(
        self, lease: BatchLease, file: StoredFile, checker: LineChecker
    ) -> AsyncIterator[_Checked]:
        rows = LineRows(lease.batch.tenant, lease.batch.id)

        def check(piece: bytes | None) -> _Checked:
            lines = checker.end() if piece is None else checker.feed(piece)
            return _Checked(lines, rows.of(one.line for one in lines))

        async for piece in self._files.read(file, 0, file.bytes):
            yield await asyncio.to_thread(check, piece)
            if checker.stopped:
                break
        yield await asyncio.to_thread(check, None)
