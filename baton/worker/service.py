"""WorkerService: frontends give work, routers watch load."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.telemetry.logs import get_logger
from baton.worker.core import WorkerCore
from baton.worker.load import load_reports
from baton.worker.session import RunSession

# A read that does not notice that it is cancelled must not keep the handler.
READER_SECONDS = 1.0

log = get_logger(__name__)


class WorkerService(worker_pb2_grpc.WorkerServiceServicer):
    """The gRPC face of a worker."""

    def __init__(self, core: WorkerCore, instance_id: str, incarnation: str) -> None:
        self._core = core
        self._instance_id = instance_id
        self._incarnation = incarnation

    async def Run(  # noqa: N802
        self,
        request_iterator: AsyncIterator[worker_pb2.RunRequest],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        session = RunSession(self._core)
        reader = asyncio.create_task(session.read(request_iterator))
        try:
            async for message in session.messages():
                yield message
        finally:
            session.cancel()
            reader.cancel()
            await asyncio.wait([reader], timeout=READER_SECONDS)
            if reader.done() and not reader.cancelled() and (error := reader.exception()):
                log.info("run.broken", error=str(error))
            await session.wait_closed()

    async def WatchLoad(  # noqa: N802
        self,
        request: worker_pb2.WatchLoadRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        async for report in load_reports(self._core, self._instance_id, self._incarnation):
            yield worker_pb2.WatchLoadResponse(report=report)
