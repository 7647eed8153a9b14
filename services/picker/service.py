"""ExternalProcessor: one call per HTTP request that passes a gateway."""

from collections.abc import Sequence

import grpc

from baton.internal.envoy.external_processor_pb2_grpc import (
    ExternalProcessorServicer,
    add_ExternalProcessorServicer_to_server,
)
from baton.rpc.server.call import ServerCall
from baton.rpc.transport.inbox import END
from services.picker.choice.frontends import FrontendChoice
from services.picker.choice.picker import EndpointPicker
from services.picker.exchange.bodies import HeldBodies
from services.picker.exchange.exchange import PickExchange
from services.picker.exchange.request import PickRequest
from services.picker.metrics import STREAMS

SERVICE_NAME = "envoy.service.ext_proc.v3.ExternalProcessor"


class PickerService(ExternalProcessorServicer):
    """Answers gateways. A request counts for its frontend until its call ends.

    Args:
        picker: decides.
        frontends: counts requests.
        bodies: bounds what is held.
    """

    def __init__(
        self, picker: EndpointPicker, frontends: FrontendChoice, bodies: HeldBodies
    ) -> None:
        self._picker = picker
        self._frontends = frontends
        self._bodies = bodies

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_ExternalProcessorServicer_to_server(self, server)

    async def Process(  # type: ignore[override]  # noqa: N802 - sends by itself
        self, _: object, context: ServerCall
    ) -> None:
        """Answer the messages of one HTTP request until the gateway ends the call."""
        use = _Use(self._frontends)

        async def pick(request: PickRequest) -> Sequence[str]:
            endpoints = await self._picker.pick(request)
            use.move_to(endpoints[0])
            return endpoints

        exchange = PickExchange(pick, self._bodies, use.move_to)
        STREAMS.inc()
        try:
            while not exchange.rejected and (message := await context.read()) is not END:
                for answer in await exchange.take(message):
                    await context.write(answer)
        finally:
            STREAMS.dec()
            exchange.close()
            use.move_to("")


class _Use:
    """The frontend that a request counts for."""

    def __init__(self, frontends: FrontendChoice) -> None:
        self._frontends = frontends
        self._endpoint = ""

    def move_to(self, endpoint: str) -> None:
        """Count the request for another endpoint; empty: for none."""
        if self._endpoint:
            self._frontends.end(self._endpoint)
        self._endpoint = endpoint
        if endpoint:
            self._frontends.begin(endpoint)
