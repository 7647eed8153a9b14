"""WorkerService: frontends give work and fetch the tokenizer, routers watch load."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.settings import LoadSettings
from baton.tokenizer_files import TokenizerFiles
from baton.worker.core import WorkerCore
from baton.worker.load import load_reports
from baton.worker.session import RunSession

TOKENIZER_SECONDS = 60.0
"""For a frontend to read a tokenizer's files; one that takes longer is cut."""


class WorkerService(worker_pb2_grpc.WorkerServiceServicer):
    """The gRPC face of a worker: one RunSession per frontend, load reports for routers."""

    def __init__(
        self,
        core: WorkerCore,
        instance_id: str,
        incarnation: str,
        load: LoadSettings,
        tokenizer: TokenizerFiles | None,
    ) -> None:
        self._core = core
        self._instance_id = instance_id
        self._incarnation = incarnation
        self._load = load
        self._tokenizer = tokenizer

    async def Run(  # type: ignore[override]  # noqa: N802 - it writes by itself
        self, request_iterator: AsyncIterator[worker_pb2.RunRequest], context: Any
    ) -> None:
        await RunSession(self._core).serve(request_iterator, context)

    async def WatchLoad(  # noqa: N802
        self,
        request: worker_pb2.WatchLoadRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        async for report in load_reports(
            self._core, self._instance_id, self._incarnation, self._load
        ):
            yield worker_pb2.WatchLoadResponse(report=report)

    async def GetTokenizer(  # type: ignore[override]  # noqa: N802 - writes under a deadline
        self, request: worker_pb2.GetTokenizerRequest, context: Any
    ) -> None:
        if self._tokenizer is None or self._tokenizer.digest != request.digest:
            raise BatonError(Reason.NOT_FOUND, "this worker has another tokenizer, or none")
        try:
            async with asyncio.timeout(TOKENIZER_SECONDS):
                for chunk in self._tokenizer.chunks():
                    await context.write(chunk)
        except TimeoutError:
            raise BatonError(Reason.SLOW_CONSUMER, "the tokenizer was not read in time") from None
