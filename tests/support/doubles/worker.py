"""A worker that outputs letters, at the speed that a test sets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from baton.engine.events import SampledTokens
from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.internal.v1.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from baton.request.stream_events import TokenLogprob
from baton.rpc.protocol import hello
from baton.v1 import common_pb2
from baton.worker.convert import handed_over_frame
from baton.worker.wire.step_tokens import StepTokens
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.support.doubles.letters import EOS, letter_id, said


@dataclass
class Script:
    """The behaviour of a worker. A test may change it at any time."""

    step_seconds: float = 0.001
    says: Sequence[int] = ()
    """The tokens of each choice, and then the end of sequence; empty: letters."""
    eos_after: int = 10**9
    """The token at this position is the end of sequence."""
    first_token: asyncio.Event = field(default_factory=asyncio.Event)
    """Prefill returns first tokens once this is set."""
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    """Prefill ends once this is set."""
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    """The prompts' KV is in place once this is set; the message that no more KV comes sets it."""
    transfer: asyncio.Event = field(default_factory=asyncio.Event)
    """The tokenizer's pieces after the first are sent once this is set."""
    fail: BatonError | None = None
    """Work fails at once with this error."""
    draining: bool = False
    """Work is handed to other workers at once."""
    decode_offset: int = 0
    """Decoding starts this many tokens after the requested position; below 0: it repeats some."""
    cached_tokens: int = 32

    def __post_init__(self) -> None:
        self.first_token.set()
        self.committed.set()
        self.fetched.set()
        self.transfer.set()


class ScriptedWorker(WorkerServiceServicer):
    """Outputs the letters of `said(choice)`, one per step, and keeps every frame that it receives.

    `streams` are the streams that have not ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.script = Script()
        self.hello = hello()
        """The first message that it sends."""
        self.frames: list[worker_pb2.FrameToWorker] = []
        self.streams: dict[int, asyncio.Task[None]] = {}
        self.calls = 0
        """Open Run calls."""
        self.tokenizer: TokenizerFiles | None = None
        """The tokenizer for frontends, whichever digest they request."""
        self.transfers = 0
        """How often its tokenizer was requested."""
        self.paused: set[int] = set()
        """Streams that wait for Resume."""
        self._resumed = asyncio.Event()
        self._go: dict[int, asyncio.Future[Sequence[int]]] = {}

    def kinds(self) -> list[str]:
        """The received frames, in order: the kind of work of a Start, or the kind of the frame.

        Frames that end a wait for KV are omitted, as their order depends on timing (see
        `prefill_done`).
        """
        return [
            frame.start.WhichOneof("work") if frame.HasField("start") else frame.WhichOneof("frame")
            for frame in self.frames
            if not frame.update_sources.prefill_done
        ]

    @property
    def prefill_done(self) -> int:
        """The number of received messages that no more KV comes."""
        return sum(frame.update_sources.prefill_done for frame in self.frames)

    def starts(self) -> list[worker_pb2.Start]:
        return [frame.start for frame in self.frames if frame.HasField("start")]

    def register(self, server: Any) -> None:
        add_WorkerServiceServicer_to_server(self, server)

    async def Run(self, requests: Any, context: Any) -> None:  # noqa: N802
        self.calls += 1
        mine: dict[int, asyncio.Task[None]] = {}
        out: asyncio.Queue[worker_pb2.FrameFromWorker] = asyncio.Queue()
        writer = asyncio.create_task(_write(out, context))
        try:
            async for frame in frames_of(requests):
                if frame.HasField("hello"):
                    out.put_nowait(worker_pb2.FrameFromWorker(hello=self.hello))
                    continue
                self.frames.append(frame)
                match frame.WhichOneof("frame"):
                    case "start":
                        stream = frame.start.stream_id
                        task = asyncio.create_task(self._work(frame.start, out))
                        self.streams[stream] = mine[stream] = task
                        await asyncio.sleep(0)  # a task that never started would not clean up
                    case "generate":
                        go = self._go.get(frame.generate.stream_id)
                        if go is not None and not go.done():
                            go.set_result(list(frame.generate.output_so_far))
                    case "update_sources" if frame.update_sources.prefill_done:
                        self.script.fetched.set()
                    case "pause":
                        self.paused.add(frame.pause.stream_id)
                    case "resume":
                        self.paused.discard(frame.resume.stream_id)
                        self._resumed.set()
                    case "cancel":
                        task = self.streams.get(frame.cancel.stream_id)
                        if task is not None:
                            task.cancel()
        finally:
            self.calls -= 1
            writer.cancel()
            for stream, task in mine.items():
                task.cancel()
                self.streams.pop(stream, None)

    async def GetTokenizer(self, request: Any, context: Any) -> None:  # noqa: N802
        self.transfers += 1
        if self.tokenizer is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "another tokenizer")
            return
        for chunk in self.tokenizer.chunks():
            await context.write(chunk)
            await self.script.transfer.wait()

    async def _work(self, start: worker_pb2.Start, out: asyncio.Queue[Any]) -> None:
        stream = start.stream_id
        try:
            if self.script.fail is not None:
                raise self.script.fail
            if self.script.draining:
                position = len(start.generate.output_so_far)
                out.put_nowait(handed_over_frame(stream, position))
                return
            if start.HasField("prefill"):
                reasons = await self._prefill(start, out)
            else:
                reasons = [await self._decode(start, out)]
        except (BatonError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                error = BatonError(Reason.CANCELLED, "cancelled")
            failed = worker_pb2.StreamFailed(stream_id=stream, status=error.to_status())
            out.put_nowait(worker_pb2.FrameFromWorker(failed=failed))
        else:
            cached = self.script.cached_tokens
            prompt = len(start.prompt_token_ids)
            usage = common_pb2.Usage(
                prompt_tokens=prompt, cached_tokens=cached, computed_tokens=prompt - cached
            )
            finished = worker_pb2.StreamFinished(stream_id=stream, reasons=reasons, usage=usage)
            out.put_nowait(worker_pb2.FrameFromWorker(finished=finished))
        finally:
            self.streams.pop(stream, None)
            self._go.pop(stream, None)
            self.paused.discard(stream)

    async def _prefill(self, start: worker_pb2.Start, out: asyncio.Queue[Any]) -> list[Any]:
        await self.script.first_token.wait()
        for choice in range(start.prefill.n):
            self._say(start, out, choice, 0)
        await self.script.committed.wait()
        return [worker_pb2.END_REASON_PREFILLED] * start.prefill.n

    async def _decode(self, start: worker_pb2.Start, out: asyncio.Queue[Any]) -> Any:
        if start.HasField("prepare"):
            prepared = worker_pb2.Prepared(
                stream_id=start.stream_id,
                ready_tokens=len(start.prompt_token_ids),
                fetched_bytes=4096,
                fetch_seconds=0.001,
                transport="shm",
            )
            self._go[start.stream_id] = asyncio.get_running_loop().create_future()
            await self.script.fetched.wait()
            out.put_nowait(worker_pb2.FrameFromWorker(prepared=prepared))
            output = await self._go[start.stream_id]
        else:
            output = list(start.generate.output_so_far)
        at = len(output) + self.script.decode_offset
        for known, token in enumerate(output):
            assert token == self._token(start, start.choice, known), "output_so_far is wrong"
        while at < start.sampling.max_tokens:
            await asyncio.sleep(self.script.step_seconds)
            while start.stream_id in self.paused:
                self._resumed.clear()
                await self._resumed.wait()
            if self._say(start, out, start.choice, at) == EOS:
                return worker_pb2.END_REASON_STOP
            at += 1
        return worker_pb2.END_REASON_LENGTH

    def _say(
        self, start: worker_pb2.Start, out: asyncio.Queue[Any], choice: int, position: int
    ) -> int:
        token = self._token(start, choice, position)
        logprobs: tuple[TokenLogprob, ...] = ()
        if start.sampling.HasField("logprobs"):
            top = [((token + rank) % 256, -0.5 - rank) for rank in range(start.sampling.logprobs)]
            logprobs = (TokenLogprob(-0.5, tuple(top)),)
        step = StepTokens()
        step.add(start.stream_id, SampledTokens(0, choice, position, (token,), logprobs))
        out.put_nowait(step.frame(self.hello.protocol_version))
        return token

    def _token(self, start: worker_pb2.Start, choice: int, position: int) -> int:
        if position >= self.script.eos_after and not start.sampling.ignore_eos:
            return EOS
        if self.script.says:
            return self.script.says[position] if position < len(self.script.says) else EOS
        return letter_id(said(choice, position + 1)[-1])


async def _write(out: asyncio.Queue[Any], context: Any) -> None:
    while True:
        await context.write(worker_pb2.RunResponse(frames=[await out.get()]))


async def frames_of(messages: Any) -> AsyncIterator[Any]:
    """Yield the frames of a stream's messages, in order."""
    async for message in messages:
        for frame in message.frames:
            yield frame
