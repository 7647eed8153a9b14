"""CPU of a streamed token in the frontend's Python alone: `python -m bench.serving.token_loop`.

Feeds recorded engine steps of 64 streams to a real connection, real requests and the real SSE
encoders, in one process without sockets; output is created and discarded. Prints the CPU per token
of chat completions and of responses, in turn, and the ratio. Other work of the machine has little
influence.
"""

import argparse
import asyncio
import time
from typing import Any

from baton.conversations.ids import draw_block
from baton.engine.events import SampledTokens
from baton.internal.v1 import cluster_pb2, router_pb2, worker_pb2
from baton.rpc.protocol import VERSION
from baton.sampling import SamplingParams
from baton.settings import FrontendLimits
from baton.telemetry.tracing import UNTRACED
from baton.tenancy.directory.principal import LOCAL
from baton.worker.wire.step_tokens import StepTokens
from baton.worker.wire.tokenizer_files import TokenizerFiles
from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.generation import GenerationSetup
from services.frontend.generation.worker_generation import WorkerGeneration
from services.frontend.models.model import ResolvedModel, ServedModel
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.response.encoder import ChunkEncoder
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.templates import CHAT
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.parse import read_response, response_request
from services.frontend.openai.stream import EventEncoder, answer_stream
from services.frontend.placement.placement import Placement
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.request import EncodedPrompt, GenerationRequest, TokenPrompt
from services.frontend.requests.validation.resolve import resolve
from services.frontend.text.tokenizer import Tokenizer
from services.frontend.workers.connection import WorkerConnection

STREAMS = 64
STEPS = 400
PROMPT = [5] * 128


class DetachedConnection(WorkerConnection):
    """A connection whose output is discarded and whose input is this program's."""

    def __init__(self) -> None:
        self.target = router_pb2.Target(instance_id="worker", incarnation="1")
        self.opened: list[int] = []
        self._buffers = {}
        self.ready = True

    def start(self, start: worker_pb2.Start, buffer: Any) -> int:
        stream_id = start.stream_id = len(self.opened) + 1
        self.opened.append(stream_id)
        self._buffers[stream_id] = buffer
        return stream_id

    def send(self, frame: worker_pb2.FrameToWorker) -> None:
        del frame


class Anywhere:
    """A pool and a placement finder with one worker."""

    def __init__(self, connection: DetachedConnection) -> None:
        self._connection = connection

    def get(self, _: router_pb2.Target) -> WorkerConnection:
        return self._connection

    async def find(self, *_: Any, **__: Any) -> Placement:
        placement = router_pb2.Placement(decode=self._connection.target)
        return Placement(placement, None, "", 0)


class Wire:
    """Creates the bytes that a connection would write."""

    on_lost = on_pause = on_resume = None
    lost = False
    written = 0

    def begin(self, _: Any, __: Any, piece: bytes) -> bool:
        self.write_piece(piece)
        return True

    def write_piece(self, data: bytes) -> None:
        self.last = b"%x\r\n%b\r\n" % (len(data), data)
        self.written += 1


KINDS = ("chat", "responses")


async def serve(kind: str, model: ServedModel, anywhere: Any, wire: Any, number: int) -> None:
    """Stream one answer of a kind."""
    sampling = SamplingParams(max_tokens=STEPS + 1, ignore_eos=True)
    request = GenerationRequest(
        model.name, TokenPrompt(PROMPT), sampling=sampling, request_id=f"r{number}"
    )
    resolved = resolve(request, ResolvedModel(model, "", b""), EncodedPrompt(PROMPT), 1, LOCAL)
    now, nobody = time.monotonic(), WorkerWaitQueue(FrontendLimits())
    context = GenerationContext(
        anywhere,
        anywhere,
        nobody,
        Suspects(),
        False,
        None,
        [],
        b"",
        UNTRACED,
        now,
        now + 600,
        3,
        2.0,
        192 * 1024,
    )
    batch: Any = GenerationBatch()
    batch.generations = [
        WorkerGeneration(GenerationSetup(resolved, "chat", UNTRACED, lambda _: None), context)
    ]
    encoder: EventEncoder
    if kind == "chat":
        options = ResponseOptions(
            f"chatcmpl-{number:024}", 1, model.name, "fp", 1, 1, False, False, False
        )
        encoder = ChunkEncoder(CHAT, options, [resolved])
    else:
        body = read_response(b'{"input":"Hello","stream":true}')
        asked = response_request(body, RequestNames(f"r{number}"), 1)
        encoder = ResponseEncoder(ResponseName(draw_block(number), 1), asked, resolved)

    async def send(_: Any) -> None:
        """Discard heads and ends, which are not measured."""

    await answer_stream(batch, encoder, wire, send, 15.0)


def message(position: int) -> bytes:
    """Return one engine step as a worker sends it."""
    step = StepTokens()
    for stream in range(STREAMS):
        token_id = (stream * 97 + position * 31) % 8000
        step.add(stream + 1, SampledTokens(stream + 1, 0, position, (token_id,)))
    return worker_pb2.RunResponse(frames=[step.frame(VERSION)]).SerializeToString()


async def cost(kind: str) -> float:
    """Return microseconds of CPU per token of a kind of answer."""
    tokenizer = Tokenizer.load(TokenizerFiles.read(tokenizer_only("token-loop")))
    card = cluster_pb2.ModelCard(name="m", context_tokens=4096, vocab_tokens=8192)
    model = ServedModel("m", tokenizer, (card,))
    connection = DetachedConnection()
    wires = [Wire() for _ in range(STREAMS)]
    serving = [
        asyncio.create_task(serve(kind, model, Anywhere(connection), wire, number))
        for number, wire in enumerate(wires)
    ]
    messages = [message(position) for position in range(STEPS)]
    while len(connection.opened) < STREAMS:
        await asyncio.sleep(0)
    half = STEPS // 2
    for data in messages[:half]:
        connection.receive(worker_pb2.RunResponse.FromString(data))
        await asyncio.sleep(0)
    began = time.process_time()
    for data in messages[half:]:
        connection.receive(worker_pb2.RunResponse.FromString(data))
        await asyncio.sleep(0)
    seconds = time.process_time() - began
    for task in serving:
        task.cancel()
    await asyncio.wait(serving)
    if min(wire.written for wire in wires) < half:
        raise RuntimeError("not every token was written")
    return seconds / half / STREAMS * 1e6


async def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind in KINDS:
            costs[kind].append(await cost(kind))
        chat, responses = (costs[kind][-1] for kind in KINDS)
        print(
            f"round {number + 1}: {chat:.2f} us of CPU per token of chat completions, "
            f"{responses:.2f} of responses ({responses / chat:.2f} x)",
            flush=True,
        )
    chat, responses = (min(costs[kind]) for kind in KINDS)
    print(f"least: {chat:.2f} and {responses:.2f} us ({responses / chat:.2f} x)")
    return costs


if __name__ == "__main__":
    cli.main(measure, __doc__, rounds=3, smallest="--rounds 1")
