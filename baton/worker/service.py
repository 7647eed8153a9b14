"""WorkerService: frontends send work and fetch the tokenizer, and routers watch load."""

import asyncio
from typing import Any

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.rpc.server.call import ServerCall
from baton.worker.core import WorkerCore
from baton.worker.load import LoadReporter
from baton.worker.session import RunSession
from baton.worker.wire.tokenizer_files import TokenizerFiles

TOKENIZER_SECONDS = 60.0
"""Seconds in which a frontend must read a tokenizer's files; a slower call is closed."""


class WorkerService(worker_pb2_grpc.WorkerServiceServicer):
    """gRPC service of a worker: one RunSession per frontend, load reports for routers."""

    def __init__(
        self,
        core: WorkerCore,
        load: LoadReporter,
        tokenizer: TokenizerFiles | None,
    ) -> None:
        self._core = core
        self._load = load
        self._tokenizer = tokenizer
        self._sessions: set[RunSession] = set()

    def hand_over(self) -> None:
        """Hand over all streams to other workers."""
        for session in list(self._sessions):
            session.hand_over()

    async def Run(  # type: ignore[override]  # noqa: N802 - it writes by itself
        self, _: object, context: ServerCall
    ) -> None:
        session = RunSession(self._core)
        self._sessions.add(session)
        try:
            await session.serve(context)
        finally:
            self._sessions.discard(session)

    async def WatchLoad(  # type: ignore[override]  # noqa: N802 - sends by itself
        self,
        request: worker_pb2.WatchLoadRequest,
        context: Any,
    ) -> None:
        await self._load.serve(context, request.router_id)

    async def GetTokenizer(  # type: ignore[override]  # noqa: N802 - writes under a deadline
        self, request: worker_pb2.GetTokenizerRequest, context: Any
    ) -> None:
        if self._tokenizer is None or self._tokenizer.digest != request.digest:
            raise BatonError(Reason.NOT_FOUND, "this worker does not have this tokenizer")
        try:
            async with asyncio.timeout(TOKENIZER_SECONDS):
                for chunk in self._tokenizer.chunks():
                    await context.write(chunk)
        except TimeoutError:
            raise BatonError(
                Reason.SLOW_CONSUMER, "the tokenizer could not be read in time"
            ) from None
