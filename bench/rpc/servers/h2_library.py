"""python-hyper's h2: the protocol's state in Python, without I/O; gRPC's framing on top."""

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated

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


class _H2(Connection):
    def __init__(self, steps: Steps, open_connections: set[Connection]) -> None:
        super().__init__(steps, open_connections)
        # h2 does not check or rewrite the server's own headers here; it checks received ones.
        self._h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._requests: dict[int, bytearray] = {}
        self._held: dict[int, list[tuple[bytes, bool]]] = {}

    def opened(self) -> None:
        self._h2.initiate_connection()

    def received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, DataReceived):
                self._requests[event.stream_id] += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, RequestReceived):
                self._requests[event.stream_id] = bytearray()
            elif isinstance(event, StreamEnded):
                self._call(event.stream_id)
            elif isinstance(event, StreamReset):
                self.steps.remove((self, event.stream_id))
                self._held.pop(event.stream_id, None)
            elif isinstance(event, WindowUpdated):
                self._send_held()

    def pending(self) -> bytes:
        data: bytes = self._h2.data_to_send()
        return data

    def _call(self, stream_id: int) -> None:
        request = bytes(self._requests.pop(stream_id)[5:])
        self._h2.send_headers(stream_id, (STATUS, CONTENT_TYPE))

        def on_token(response: ChatResponse, last: bool) -> None:
            self._send(stream_id, message(response.SerializeToString()), last)

        self.steps.add((self, stream_id), request, on_token)

    def _send(self, stream_id: int, data: bytes, last: bool) -> None:
        if self._held or len(data) > self._h2.local_flow_control_window(stream_id):
            self._held.setdefault(stream_id, []).append((data, last))
            return
        self._h2.send_data(stream_id, data)
        if last:
            self._h2.send_headers(stream_id, (GRPC_STATUS,), end_stream=True)

    def _send_held(self) -> None:
        held, self._held = self._held, {}
        for stream_id, waiting in held.items():
            for data, last in waiting:
                self._send(stream_id, data, last)


async def start(steps: Steps) -> int:
    """Serve."""
    return await listen(steps, _H2)
