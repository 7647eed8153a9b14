"""A load over Baton's gRPC API, on one channel."""

import asyncio
import time
from typing import Any

import grpc

from baton.rpc.channels import open_channel
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.serving.load.streams import Load, NextRequest, Observed

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]


async def run_grpc(load: Load, next_request: NextRequest, seen: Observed) -> None:
    """Keep `concurrency` calls running."""
    requests = [_request(load, prompt) for prompt in load.prompts]
    barrier = asyncio.Barrier(load.concurrency)
    async with open_channel(load.grpc) as channel:
        stub: Any = InferenceServiceStub(channel)

        async def client(slot: int) -> None:
            await asyncio.sleep(load.ramp_seconds * slot / load.concurrency)
            while (number := next_request()) is not None:
                request = requests[number % len(requests)]
                if load.together:
                    await barrier.wait()
                await _call(stub.Chat(request, timeout=load.timeout_seconds), seen)

        await asyncio.gather(*(client(slot) for slot in range(load.concurrency)))


def _request(load: Load, prompt: str) -> inference_pb2.ChatRequest:
    message = inference_pb2.ChatMessage(role="user", content=prompt)
    request = inference_pb2.ChatRequest(messages=[message])
    request.context.model = load.model
    request.sampling.temperature = 0.0
    request.sampling.max_tokens = load.output_tokens
    request.sampling.ignore_eos = True
    return request


async def _call(call: Any, seen: Observed) -> None:
    asked = time.perf_counter()
    first = last = 0.0
    try:
        while (event := await call.read()) is not _END:
            if event.HasField("delta"):
                now = time.perf_counter()
                if first:
                    seen.interval(now - last)
                else:
                    first = now
                    seen.stream_began()
                last = now
                seen.events += 1
        seen.first.append(first - asked)
        seen.whole.append(last - asked)
    except grpc.aio.AioRpcError as error:
        seen.errors[error.code().name] += 1
        seen.sample = seen.sample or str(error.details())[:300]
    finally:
        call.cancel()
        seen.open -= bool(first)
