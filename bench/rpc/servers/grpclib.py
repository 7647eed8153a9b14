"""grpclib: gRPC on python-hyper's h2, with a task per call."""

from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from baton.v1.inference_pb2 import ChatRequest, ChatResponse
from bench.rpc.servers.waiting import tokens
from bench.rpc.steps import METHOD, Steps

_kept: list[Server] = []


class _Service:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def _chat(self, stream: Any) -> None:
        request = await stream.recv_message()
        async for message in tokens(self._steps, id(stream), request):
            await stream.send_message(message)

    def __mapping__(self) -> dict[str, Handler]:  # required by grpclib
        return {METHOD: Handler(self._chat, Cardinality.UNARY_STREAM, ChatRequest, ChatResponse)}


async def start(steps: Steps) -> int:
    """Serve."""
    server = Server([_Service(steps)])
    await server.start("127.0.0.1", 0)
    _kept.append(server)
    port: int = server._server.sockets[0].getsockname()[1]  # the only way to get the port
    return port
