"""Checks the input of a batch, and stores its lines."""

import asyncio

import msgspec

from baton.batches.records import BatchLease
from baton.batches.store import BatchStore
from baton.errors import BatonError, Reason
from baton.files.records import file_text
from baton.files.store import FileStore
from baton.tenancy.directory.principal import Principal
from baton.v1 import common_pb2
from services.frontend.access.authenticator import Authenticator
from services.frontend.generation.inference import Inference
from services.frontend.openai.batches.checking.lines import (
    CheckedLine,
    InputError,
    InputLimits,
    LineChecker,
)

_LATER = frozenset({Reason.NO_WORKER, Reason.MODEL_LOADING})
"""The model exists, and will be there."""
_LINES_AT_ONCE = 500
_MOST_ATTEMPTS = 20
"""An input that stops its frontends is given up."""


class InputCheck:
    """Checks inputs. One per frontend, on the event loop.

    Args:
        store: of batches.
        files: with the inputs.
        inference: knows the models.
        authenticator: knows whose batches they are.
        limits: of inputs.
    """

    def __init__(
        self,
        store: BatchStore,
        files: FileStore,
        inference: Inference,
        authenticator: Authenticator,
        limits: InputLimits,
    ) -> None:
        self._store = store
        self._files = files
        self._inference = inference
        self._authenticator = authenticator
        self._limits = limits

    async def run(self, lease: BatchLease) -> None:
        """Check a batch's input: then its lines run, or it has failed.

        Raises:
            BatonError: UNAVAILABLE: another one checks it again.
        """
        batch = lease.batch
        checker = LineChecker(batch.endpoint, self._limits)
        models: dict[str, BatonError | None] = {}
        try:
            if lease.attempt > _MOST_ATTEMPTS:
                raise BatonError(Reason.INTERNAL, "the input could not be checked")
            principal = self._authenticator.recall(batch.key)
            await self._read(lease, checker, principal, models)
        except BatonError as error:
            if error.reason is Reason.UNAVAILABLE:
                raise
            checker.refuse(InputError(error.reason.openai_code, error.message))
        if checker.errors:
            said = [error._asdict() for error in checker.errors]
            await self._store.fail(lease, checker.total, msgspec.json.encode(said).decode())
            return
        model = next(iter(models)) if len(models) == 1 else ""
        await self._store.start(lease, checker.total, model)

    async def _read(
        self,
        lease: BatchLease,
        checker: LineChecker,
        principal: Principal,
        models: dict[str, BatonError | None],
    ) -> None:
        batch = lease.batch
        file = await self._files.get(batch.scope, file_text(batch.input_file))
        await self._store.begin_lines(lease)
        async for piece in self._files.read(file, 0, file.bytes):
            checked = await asyncio.to_thread(checker.feed, piece)
            await self._add(lease, checker, principal, checked, models)
            if checker.stopped:
                break
        checked = await asyncio.to_thread(checker.end)
        await self._add(lease, checker, principal, checked, models)

    async def _add(
        self,
        lease: BatchLease,
        checker: LineChecker,
        principal: Principal,
        checked: list[CheckedLine],
        models: dict[str, BatonError | None],
    ) -> None:
        """Check the models of lines, and store the lines unless there is an error already."""
        for (number, *_), model in checked:
            if model not in models:
                models[model] = self._model_error(principal, model)
            if (error := models[model]) is not None:
                code = error.reason.openai_code
                checker.refuse(InputError(code, error.message, number, "body.model"))
        if checker.errors:
            return
        for at in range(0, len(checked), _LINES_AT_ONCE):
            lines = [one.line for one in checked[at : at + _LINES_AT_ONCE]]
            await self._store.add_lines(lease, lines)

    def _model_error(self, who: Principal, name: str) -> BatonError | None:
        """Return why the caller's batches may not ask for a model; None: they may."""
        try:
            self._check_model(who, name)
        except BatonError as error:
            return error
        return None

    def _check_model(self, who: Principal, name: str) -> None:
        """Check that a model exists, and that the caller's batches may ask for it."""
        registry, policies = self._inference.registry, self._inference.policies
        registry.aliases.require(who, name)
        if registry.is_auto(name):
            return
        alias = registry.alias(name)
        try:
            found = registry.get(name if alias is None else alias.main)
        except BatonError as error:
            if error.reason in _LATER:
                return
            raise
        policies.require(who, found)
        policies.require_class(found, who.capped(common_pb2.PRIORITY_CLASS_BATCH))
