"""Baton's own server, with everything that a call gets: limits, metrics, a task, deadlines."""

import asyncio
from typing import Any

import grpc

from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from baton.v1.inference_pb2 import ChatRequest, ChatResponse
from bench.rpc.steps import Steps

SERVICE = "baton.v1.InferenceService"
_kept: list[Server] = []


async def start(steps: Steps) -> int:
    """Serve."""

    async def chat(request: ChatRequest, context: Any) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_token(response: ChatResponse, last: bool) -> None:
            context.send(response)
            if last and not ended.done():
                ended.set_result(None)

        steps.add(context, request, on_token)
        try:
            await ended
        finally:
            steps.remove(context)

    def register(server: Any) -> None:
        handler = grpc.unary_stream_rpc_method_handler(
            chat, ChatRequest.FromString, ChatResponse.SerializeToString
        )
        server.add_registered_method_handlers(SERVICE, {"Chat": handler})

    server = Server(GrpcSettings(), "bench")
    server.add(register, SERVICE)
    await server.start()
    _kept.append(server)
    return int(server.address.rsplit(":", 1)[1])
