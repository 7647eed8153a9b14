"""ngh2: nghttp2 compiled into a Python module, without I/O; gRPC's framing on top."""

from ngh2 import (
    Connection as NghttpConnection,
)
from ngh2 import (
    DataReceived,
    RequestReceived,
    Role,
    StreamClosed,
)

from baton.v1.inference_pb2 import ChatResponse
from bench.rpc.servers.asyncio_base import (
    CONTENT_TYPE,
    GRPC_STATUS,
    STATUS,
    Connection,
    listen,
    message,
)
from bench.rpc.steps import Steps


class _Ngh2(Connection):
    def __init__(self, steps: Steps, open_connections: set[Connection]) -> None:
        super().__init__(steps, open_connections)
        self._http2 = NghttpConnection(Role.SERVER)
        self._requests: dict[int, bytearray] = {}

    def opened(self) -> None:
        self._http2.initiate_connection()

    def received(self, data: bytes) -> None:
        self._http2.receive_data(data)
        for event in self._http2.events():
            if isinstance(event, RequestReceived):
                self._requests[event.stream_id] = bytearray()
            elif isinstance(event, DataReceived):
                self._requests[event.stream_id] += event.data
                if event.end_stream:
                    self._call(event.stream_id)
            elif isinstance(event, StreamClosed):
                self.steps.remove((self, event.stream_id))

    def pending(self) -> bytes:
        data: bytes = self._http2.data_to_send()
        return data

    def _call(self, stream_id: int) -> None:
        request = bytes(self._requests.pop(stream_id)[5:])
        self._http2.send_response(stream_id, (STATUS, CONTENT_TYPE))

        def on_token(response: ChatResponse, last: bool) -> None:
            self._http2.send_data(stream_id, message(response.SerializeToString()))
            if last:
                self._http2.send_trailers(stream_id, (GRPC_STATUS,))

        self.steps.add((self, stream_id), request, on_token)


async def start(steps: Steps) -> int:
    """Serve."""
    return await listen(steps, _Ngh2)
