"""grpcio's asyncio server: gRPC's C core, with a task per call."""

from typing import Any

import grpc

from baton.v1.inference_pb2 import ChatRequest, ChatResponse
from bench.rpc.servers.waiting import tokens
from bench.rpc.steps import Steps

_kept: list[grpc.aio.Server] = []


async def start(steps: Steps) -> int:
    """Serve."""

    async def chat(request: ChatRequest, context: Any) -> None:
        async for message in tokens(steps, id(context), request):
            await context.write(message)

    handler = grpc.unary_stream_rpc_method_handler(
        chat, ChatRequest.FromString, ChatResponse.SerializeToString
    )
    service = grpc.method_handlers_generic_handler("baton.v1.InferenceService", {"Chat": handler})
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _kept.append(server)
    return port
