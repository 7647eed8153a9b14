"""The stream to one worker: one Run call, numbered work on it.

A link has one task that reads and one that writes. Frames go out in the order in which they were
given; those that wait while a message is written leave together in the next one. The write queue is
bounded: a worker that lets it fill up, or takes longer than 5 s for a message, is as good as dead,
and the link breaks. When a link breaks, every stream on it is told. Numbers are never used twice: a
frame of an older attempt has one that nobody waits for.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import cast

import grpc

from baton.internal.v1 import router_pb2, worker_pb2, worker_pb2_grpc
from services.frontend.metrics import LATE_FRAMES, WORK_STREAMS
from services.frontend.workers.event_buffer import Lost, Mailbox

MAX_QUEUED_FRAMES = 4096
MAX_FRAMES_PER_MESSAGE = 64
MAX_TOKENS_PER_MESSAGE = 65536
"""Of all frames in a message but the first; 5 bytes each, of the 4 MiB that a server reads."""
_WRITE_SECONDS = 5.0


class LinkBrokenError(Exception):
    """The link has broken; its worker may be gone."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(instance_id)
        self.instance_id = instance_id


class Link:
    """One Run call. Made by `Links`."""

    def __init__(
        self,
        target: router_pb2.Target,
        channel: grpc.aio.Channel,
        numbers: "itertools.count[int]",
        on_broken: Callable[["Link", str, bool], None],
    ) -> None:
        self.target = target
        self._numbers = numbers
        self._on_broken = on_broken
        self._streams: dict[int, Mailbox] = {}
        self._queue: deque[worker_pb2.FrameToWorker] = deque()
        self._more = asyncio.Event()
        self._broken = False
        loop = asyncio.get_running_loop()
        self.heard_at = loop.time()
        """Loop time of the latest frame, or of the moment since which one is expected."""
        self._call: grpc.aio.StreamStreamCall[worker_pb2.RunRequest, worker_pb2.RunResponse]
        self._call = worker_pb2_grpc.WorkerServiceStub(channel).Run()  # type: ignore[call-arg]  # the stub wants an iterator, grpc.aio does not
        # They outlive the request that happens to be the first, and serve all: not in its name.
        self._tasks = [
            loop.create_task(work, context=Context()) for work in (self._read(), self._write())
        ]

    @property
    def busy(self) -> bool:
        """Whether any stream waits for frames."""
        return bool(self._streams)

    def start(self, start: worker_pb2.Start, mailbox: Mailbox) -> int:
        """Begin work; `start.stream_id` is filled in and answered. Frames go to the mailbox.

        Raises:
            LinkBrokenError: nothing was begun.
        """
        if self._broken:
            raise LinkBrokenError(self.target.instance_id)
        stream_id = start.stream_id = next(self._numbers)
        if not self._streams:
            self.heard_at = asyncio.get_running_loop().time()
        self._streams[stream_id] = mailbox
        WORK_STREAMS.inc()
        self._send(worker_pb2.FrameToWorker(start=start))
        return stream_id

    def send(self, frame: worker_pb2.FrameToWorker) -> None:
        """Say something about a stream. Nothing happens on a broken link."""
        if not self._broken:
            self._send(frame)

    def release(self, stream_id: int) -> None:
        """Want no more of a stream: it is cancelled unless it has ended."""
        if self._streams.pop(stream_id, None) is not None:
            WORK_STREAMS.dec()
            self.send(worker_pb2.FrameToWorker(cancel=worker_pb2.Cancel(stream_id=stream_id)))

    def break_off(self, why: str, *, expected: bool = False) -> None:
        """End the call and tell every stream on it.

        Args:
            why: for the log.
            expected: the caller knows what is the matter with the worker.
        """
        if self._broken:
            return
        self._broken = True
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        self._queue.clear()
        streams, self._streams = self._streams, {}
        WORK_STREAMS.dec(len(streams))
        self._on_broken(self, why, expected)
        for stream_id, mailbox in streams.items():
            mailbox.put(Lost(stream_id))

    async def gone(self) -> None:
        """Return when the link's tasks have ended."""
        await asyncio.wait(self._tasks)

    def _send(self, frame: worker_pb2.FrameToWorker) -> None:
        if len(self._queue) >= MAX_QUEUED_FRAMES:
            # Not at once: the caller is in the middle of something.
            asyncio.get_running_loop().call_soon(self.break_off, "it does not read")
            return
        self._queue.append(frame)
        self._more.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._queue:
                    async with asyncio.timeout(_WRITE_SECONDS):
                        await self._call.write(self._message())
        except TimeoutError:
            self.break_off("it does not read")
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The reader knows why; this is for the case that it waits.
            self.break_off("the stream broke")

    def _message(self) -> worker_pb2.RunRequest:
        """As many of the frames that wait as one message takes, at least one."""
        frames, tokens = [self._queue.popleft()], 0
        while self._queue and len(frames) < MAX_FRAMES_PER_MESSAGE:
            start, generate = self._queue[0].start, self._queue[0].generate
            tokens += len(start.prompt_token_ids) + len(start.generate.output_so_far)
            tokens += len(generate.output_so_far)
            if tokens > MAX_TOKENS_PER_MESSAGE:
                break
            frames.append(self._queue.popleft())
        return worker_pb2.RunRequest(frames=frames)

    async def _read(self) -> None:
        why = "it ended the stream"
        clock = asyncio.get_running_loop().time
        try:
            while True:
                response = await self._call.read()
                if response is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                    break
                self.heard_at = clock()
                for frame in cast(worker_pb2.RunResponse, response).frames:
                    self._deliver(frame)
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
        finally:
            self.break_off(why)

    def _deliver(self, frame: worker_pb2.FrameFromWorker) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "step":
            streams = self._streams
            for entry in frame.step.streams:
                stream_id = entry.stream_id
                mailbox = streams.get(stream_id)
                if mailbox is None:
                    LATE_FRAMES.inc()
                else:
                    mailbox.tokens(
                        stream_id,
                        entry.choice,
                        entry.position,
                        entry.token_ids,
                        entry.logprobs,
                    )
        elif kind == "prepared":
            mailbox = self._streams.get(frame.prepared.stream_id)
            if mailbox is not None:
                mailbox.put(frame.prepared)
        elif kind == "finished":
            mailbox = self._forget(frame.finished.stream_id)
            if mailbox is not None:
                mailbox.put(frame.finished)
        elif kind == "failed":
            mailbox = self._forget(frame.failed.stream_id)
            if mailbox is not None:
                mailbox.put(frame.failed)

    def _forget(self, stream_id: int) -> Mailbox | None:
        mailbox = self._streams.pop(stream_id, None)
        if mailbox is not None:
            WORK_STREAMS.dec()
        return mailbox
