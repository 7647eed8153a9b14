"""A frontend in this process, and scripted doubles of what it speaks to: real servers, no engine.

A scripted worker says the letters of `said(choice)`, one per step, as fast or slow as a test wants,
and keeps every frame that it was sent. A scripted router places where a test wants and counts its
tickets.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from baton.cluster import keys
from baton.cluster.etcd import Etcd
from baton.cluster.local_etcd import LocalEtcd
from baton.cluster.registration import Registration
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, kvstore_pb2, router_pb2, worker_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.internal.v1.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from baton.process.process import Process
from baton.rpc.channels import open_channel
from baton.rpc.protocol import hello
from baton.rpc.server import Server
from baton.settings import FrontendSettings, GrpcSettings
from baton.v1 import common_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from services.frontend.app import compose

LAYOUT = b"L" * 16
MODEL = "org/letters"
CONTEXT = 100_000
TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'refuse me' %}{{ raise_exception('no') }}{% endif %}"
    "{{ m.role }}:{{ m.content }}\n{% endfor %}assistant:"
)


def write_model(directory: Path) -> Path:
    """A tokenizer of single bytes, which stand for themselves, and an end-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    directory.mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return directory


EOS = 256
_LETTERS = {chr(b): i for i, b in enumerate(sorted(map(ord, pre_tokenizers.ByteLevel.alphabet())))}


def letter_id(letter: str) -> int:
    return _LETTERS[letter]


def said(choice: int, count: int) -> str:
    """What a scripted worker says as the first `count` tokens of a choice."""
    return "".join(chr(97 + (choice * 5 + at) % 26) for at in range(count))


@dataclass
class Script:
    """How a worker behaves. A test may change it at any time."""

    step_seconds: float = 0.001
    eos_after: int = 10**9
    """The token at this position is the end of sequence."""
    first_token: asyncio.Event = field(default_factory=asyncio.Event)
    """Prefill gives first tokens once it is set."""
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    """Prefill ends once it is set."""
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    """Prompts' KV is in place once it is set; being told that no more comes sets it."""
    fail: BatonError | None = None
    """Work fails at once with it."""
    decode_offset: int = 0
    """Decoding begins so many tokens after where it was told to; below 0: it repeats some."""
    cached_tokens: int = 32

    def __post_init__(self) -> None:
        self.first_token.set()
        self.committed.set()
        self.fetched.set()


class ScriptedWorker(WorkerServiceServicer):
    """See the module's text. `streams` are the pieces of work that have not ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.script = Script()
        self.hello = hello()
        """What it says first."""
        self.frames: list[worker_pb2.FrameToWorker] = []
        self.streams: dict[int, asyncio.Task[None]] = {}
        self.calls = 0
        """Run calls that are open."""
        self._go: dict[int, asyncio.Future[Sequence[int]]] = {}

    def kinds(self) -> list[str]:
        """What it was told, in order: the kind of work of a Start, or the kind of the frame.

        Without frames that end a wait for KV: when they come is a matter of timing
        (see `prefill_done`).
        """
        return [
            frame.start.WhichOneof("work") if frame.HasField("start") else frame.WhichOneof("frame")
            for frame in self.frames
            if not frame.update_sources.prefill_done
        ]

    @property
    def prefill_done(self) -> int:
        """How often it was told that no more KV comes."""
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
            async for frame in _each(requests):
                if frame.HasField("hello"):
                    out.put_nowait(worker_pb2.FrameFromWorker(hello=self.hello))
                    continue
                self.frames.append(frame)
                match frame.WhichOneof("frame"):
                    case "start":
                        stream = frame.start.stream_id
                        task = asyncio.create_task(self._work(frame.start, out))
                        self.streams[stream] = mine[stream] = task
                        await asyncio.sleep(0)  # a task that never began would not clean up
                    case "generate":
                        go = self._go.get(frame.generate.stream_id)
                        if go is not None and not go.done():
                            go.set_result(list(frame.generate.output_so_far))
                    case "update_sources" if frame.update_sources.prefill_done:
                        self.script.fetched.set()
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

    async def _work(self, start: worker_pb2.Start, out: asyncio.Queue[Any]) -> None:
        stream = start.stream_id
        try:
            if self.script.fail is not None:
                raise self.script.fail
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
            if self._say(start, out, start.choice, at) == EOS:
                return worker_pb2.END_REASON_STOP
            at += 1
        return worker_pb2.END_REASON_LENGTH

    def _say(
        self, start: worker_pb2.Start, out: asyncio.Queue[Any], choice: int, position: int
    ) -> int:
        token = self._token(start, choice, position)
        entry = worker_pb2.StreamTokens(
            stream_id=start.stream_id,
            choice=choice,
            position=position,
            token_ids=[token],
        )
        if start.sampling.HasField("logprobs"):
            top = [common_pb2.TopLogprob(token_id=token, logprob=-0.5)]
            top = top[: start.sampling.logprobs]
            entry.logprobs.append(common_pb2.TokenLogprob(logprob=-0.5, top=top))
        step = worker_pb2.EngineStep(streams=[entry])
        out.put_nowait(worker_pb2.FrameFromWorker(step=step))
        return token

    def _token(self, start: worker_pb2.Start, choice: int, position: int) -> int:
        if position >= self.script.eos_after and not start.sampling.ignore_eos:
            return EOS
        return letter_id(said(choice, position + 1)[-1])


async def _write(out: asyncio.Queue[Any], context: Any) -> None:
    while True:
        await context.write(worker_pb2.RunResponse(frames=[await out.get()]))


async def _each(messages: Any) -> AsyncIterator[Any]:
    async for message in messages:
        for frame in message.frames:
            yield frame


class ScriptedRouter(RouterServiceServicer):
    """Places where `place` says; `tickets` are those handed out and not given back."""

    def __init__(self) -> None:
        self.place: Callable[[router_pb2.PlaceQuery], router_pb2.Placement | BatonError]
        self.queries: list[router_pb2.PlaceQuery] = []
        self.tickets: set[str] = set()
        self.answers = asyncio.Event()
        """It answers while this is set."""
        self.answers.set()
        self.hello = hello()
        """What it says first."""

    def register(self, server: Any) -> None:
        add_RouterServiceServicer_to_server(self, server)

    async def Place(self, requests: Any, context: Any) -> None:  # noqa: N802
        mine: set[str] = set()
        try:
            async for frame in _each(requests):
                if frame.HasField("hello"):
                    greeting = router_pb2.FrameFromRouter(hello=self.hello)
                    await context.write(router_pb2.PlaceResponse(frames=[greeting]))
                elif frame.HasField("return_tickets"):
                    for ticket in frame.return_tickets.tickets:
                        mine.remove(ticket)
                        self.tickets.remove(ticket)
                else:
                    await self.answers.wait()
                    self.queries.append(frame.query)
                    answer = self._answer(frame.query, mine)
                    await context.write(router_pb2.PlaceResponse(frames=[answer]))
        finally:
            self.tickets -= mine

    def _answer(self, query: router_pb2.PlaceQuery, mine: set[str]) -> router_pb2.FrameFromRouter:
        placed = self.place(query)
        number = query.correlation_id
        if isinstance(placed, BatonError):
            failed = router_pb2.PlaceFailed(correlation_id=number, status=placed.to_status())
            return router_pb2.FrameFromRouter(failed=failed)
        placed.correlation_id = number
        placed.ticket = f"t-{secrets.token_hex(4)}"
        mine.add(placed.ticket)
        self.tickets.add(placed.ticket)
        return router_pb2.FrameFromRouter(placement=placed)


class Wire:
    """A TCP connection's way to a server, which can go dead without a word, as a network does."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._dead = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # also of those whose task had not begun
            writer.close()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Nothing goes through any more, and nobody is told."""
        self._dead = True

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):  # the server crashed, or the client left
            there, back = await asyncio.open_connection(*self._to)
            with closing(back):
                await asyncio.gather(self._relay(reader, back), self._relay(there, writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._dead:
                writer.write(data)
        writer.close()


@dataclass
class Member:
    """A double in the cluster."""

    double: Any
    instance: cluster_pb2.Instance
    server: Server
    wire: Wire
    stack: AsyncExitStack

    @property
    def target(self) -> router_pb2.Target:
        return router_pb2.Target(
            instance_id=self.instance.id,
            incarnation=self.instance.incarnation,
            address=self.instance.address,
        )

    async def crash(self) -> None:
        """Its connections break; its record stays until its lease lapses."""
        await self.server.drain(0)


@dataclass
class Stage:
    """A cluster of doubles around one frontend. Everything in it ends with the test."""

    etcd: LocalEtcd
    client: Etcd
    cluster: str
    stack: AsyncExitStack
    model_dir: Path
    members: dict[str, Member] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    process: Any = None
    grpc_address: str = ""
    http_url: str = ""

    model = MODEL
    context = CONTEXT
    eos = EOS
    said = staticmethod(said)
    letter_id = staticmethod(letter_id)

    @property
    def router(self) -> ScriptedRouter:
        double = self.members["router"].double
        assert isinstance(double, ScriptedRouter)
        return double

    def worker(self, name: str) -> ScriptedWorker:
        double = self.members[name].double
        assert isinstance(double, ScriptedWorker)
        return double

    @property
    def workers(self) -> list[ScriptedWorker]:
        return [m.double for m in self.members.values() if isinstance(m.double, ScriptedWorker)]

    async def add(self, name: str, role: cluster_pb2.Role.ValueType) -> Member:
        worker = role != cluster_pb2.ROLE_ROUTER
        instance = cluster_pb2.Instance(
            id=name,
            incarnation=secrets.token_hex(4),
            role=role,
            model=MODEL if worker else "",
            layout_id=LAYOUT if worker else b"",
        )
        double = ScriptedWorker(name) if worker else ScriptedRouter()
        stack = await self.stack.enter_async_context(AsyncExitStack())
        server = await stack.enter_async_context(
            Server(GrpcSettings(port=0), name, incarnation=instance.incarnation)
        )
        service = "WorkerService" if worker else "RouterService"
        server.add(double.register, f"baton.internal.v1.{service}")
        await server.start()
        host, _, port = server.address.rpartition(":")
        wire = await stack.enter_async_context(Wire(host, int(port)))
        instance.address = wire.address
        card = cluster_pb2.ModelCard(
            name=MODEL,
            weights_digest=b"W" * 16,
            layout_id=LAYOUT,
            block_tokens=16,
            block_bytes=4096,
            context_tokens=CONTEXT,
            vocab_tokens=257,
            eos_token_ids=[EOS],
            features=["logprobs", "penalties", "logit_bias", "min_p"],
        )
        await stack.enter_async_context(
            Registration(self.client, self.cluster, instance, [card] if worker else [])
        )
        member = self.members[name] = Member(double, instance, server, wire, stack)
        return member

    def place(self, decode: str, prefill: str | None = None) -> router_pb2.Placement:
        placement = router_pb2.Placement(
            decode=self.members[decode].target,
            sources=[kvstore_pb2.KvSource(store_id=f"store-of-{prefill}", address="127.0.0.1:1")],
            prediction=router_pb2.Prediction(cached_tokens=16, reason="scripted"),
        )
        if prefill is not None:
            placement.prefill.CopyFrom(self.members[prefill].target)
        return placement

    async def start_frontend(self, **settings: Any) -> None:
        """Start the frontend; it knows the doubles that were added before."""
        parsed = FrontendSettings(
            grpc={"port": 0},
            http={"port": 0, **settings.pop("http", {})},
            etcd={"endpoints": self.etcd.endpoints, "cluster": self.cluster},
            models=(f"{MODEL}={self.model_dir}",),
            **settings,
        )
        stack = await self.stack.enter_async_context(AsyncExitStack())
        self.process = Process("frontend", "frontend", secrets.token_hex(8), stack, asyncio.Event())
        await compose(self.process, parsed)
        record = await self.client.get(keys.instance(self.cluster, "frontend"))
        instance = keys.decode(cluster_pb2.Instance, record or b"")
        self.grpc_address, self.http_url = instance.address, f"http://{instance.http_address}"

    def stub(self) -> Any:
        """A gRPC client of the frontend."""
        channel = open_channel(self.grpc_address)
        self.stack.push_async_callback(channel.close, None)
        return InferenceServiceStub(channel)

    async def eventually(self, holds: Callable[[], bool], seconds: float = 2.0) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.005)

    async def quiet(self, seconds: float = 1.0) -> None:
        """Wait until nobody holds anything of any request, at most `seconds`."""

        def nothing_held() -> bool:
            return not (any(worker.streams for worker in self.workers) or self.router.tickets)

        await self.eventually(nothing_held, seconds)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "letters")


@pytest.fixture
async def empty_stage(
    etcd: LocalEtcd, etcd_client: Etcd, cluster: str, model_dir: Path
) -> AsyncIterator[Stage]:
    """A cluster with nobody in it."""
    async with AsyncExitStack() as stack:
        made = Stage(etcd, etcd_client, cluster, stack, model_dir)
        yield made
        assert made.process is None or made.process.failure is None


@pytest.fixture
async def stage(empty_stage: Stage) -> Stage:
    """A router, prefill workers p0 and p1, decode workers d0 and d1, and a frontend.

    Requests are placed on p0 and d0, or on p1 and d1 where the first are excluded.
    """
    stage = empty_stage
    await stage.add("router", cluster_pb2.ROLE_ROUTER)
    for name, role in (
        ("p0", cluster_pb2.ROLE_PREFILL),
        ("p1", cluster_pb2.ROLE_PREFILL),
        ("d0", cluster_pb2.ROLE_DECODE),
        ("d1", cluster_pb2.ROLE_DECODE),
    ):
        await stage.add(name, role)

    def place(query: router_pb2.PlaceQuery) -> router_pb2.Placement:
        excluded = set(query.excluded_instances)
        decode = "d1" if "d0" in excluded else "d0"
        if query.output_tokens:
            return stage.place(decode)
        return stage.place(decode, "p1" if "p0" in excluded else "p0")

    stage.router.place = place
    await stage.start_frontend()
    return stage
