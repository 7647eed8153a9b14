"""The state of one exchange with a gateway: an HTTP request and its response.

A gateway sends the parts of both, in order, and waits for an answer to each; with bodies that are
FULL_DUPLEX_STREAMED it waits for none, and the picker sends them back when it has what it needs.
"""

from collections.abc import Awaitable, Callable, Sequence

from baton.errors import BatonError
from baton.internal.envoy.external_processor_pb2 import (
    BodyResponse,
    HeadersResponse,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)
from baton.internal.envoy.processing_mode_pb2 import ProcessingMode
from services.picker.exchange.bodies import HeldBodies
from services.picker.exchange.request import (
    OBJECTIVE_HEADER,
    PickRequest,
    headers_of,
    model_of,
    served_by,
    subset_of,
)
from services.picker.exchange.responses import add_destination, pieces, rejection
from services.picker.metrics import UNREAD_BODIES

Pick = Callable[[PickRequest], Awaitable[Sequence[str]]]
"""Returns endpoints, the best one first; raises BatonError: the client gets it."""

_PASSED_ON = (ProcessingMode.FULL_DUPLEX_STREAMED, ProcessingMode.GRPC)
"""Modes in which a body goes on only as the picker sends it back."""
_READ = (
    ProcessingMode.FULL_DUPLEX_STREAMED,
    ProcessingMode.BUFFERED,
    ProcessingMode.BUFFERED_PARTIAL,
)
"""Modes in which the head waits for the body, so that the body can decide."""


class PickExchange:
    """Answers the messages of one stream. Owned by its call.

    Args:
        pick: decides.
        bodies: bounds what is held.
        on_served: called with the endpoint that served the response, if the gateway says it.
    """

    def __init__(
        self, pick: Pick, bodies: HeldBodies, on_served: Callable[[str], None] = lambda _: None
    ) -> None:
        self._pick = pick
        self._bodies = bodies
        self._on_served = on_served
        # What the protocol asks for; a gateway that does not say what it does, does this.
        self._request_mode = self._response_mode = ProcessingMode.FULL_DUPLEX_STREAMED
        self._request = PickRequest()
        self._body: list[bytes] = []
        self._held = 0
        self._waiting_head = False
        """Whether the head is answered only with the destination."""
        self._picked = False
        self.rejected = False
        """Whether the client was answered: nothing more is sent."""

    async def take(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        """Return the answers to a message, or to earlier ones: none, one or several."""
        if message.HasField("protocol_config"):
            self._request_mode = message.protocol_config.request_body_mode
            self._response_mode = message.protocol_config.response_body_mode
        part = message.WhichOneof("request")
        if part in ("request_headers", "request_body", "request_trailers"):
            answers = await self._take_request(part, message)
        else:
            answers = self._take_response(part, message)
        return [] if message.observability_mode else answers

    def close(self) -> None:
        """Release what is held. Idempotent."""
        self._bodies.release(self._held)
        self._body, self._held = [], 0

    async def _take_request(
        self, part: str, message: ProcessingRequest
    ) -> list[ProcessingResponse]:
        if self._picked:
            return self._own_answers(part, message)
        if part == "request_headers":
            if self._read_head(message):
                self._waiting_head = self._request_mode in _PASSED_ON
                head = ProcessingResponse(request_headers=HeadersResponse())
                return [] if self._waiting_head else [head]
        elif part == "request_body" and self._hold(message):
            return []
        return await self._decide(part, message)

    def _read_head(self, message: ProcessingRequest) -> bool:
        """Read a head; return whether its body is needed."""
        head = message.request_headers
        headers = headers_of(head)
        self._request = PickRequest(
            objective=headers.get(OBJECTIVE_HEADER, ""), subset=subset_of(message.metadata_context)
        )
        json = headers.get("content-type", "").partition(";")[0].strip() == "application/json"
        return json and not head.end_of_stream and self._request_mode in _READ

    def _hold(self, message: ProcessingRequest) -> bool:
        """Take a piece of the body; return whether to wait for more."""
        body = message.request_body
        self._body.append(body.body)
        if not self._bodies.grow(self._held, len(body.body)):
            UNREAD_BODIES.inc()
            return False
        self._held += len(body.body)
        if self._request_mode in _PASSED_ON and not body.end_of_stream:
            return True
        self._read_model()
        return False

    def _read_model(self) -> None:
        self._request = self._request._replace(model=model_of(self._body))

    async def _decide(self, part: str, message: ProcessingRequest) -> list[ProcessingResponse]:
        """Return the answers to all that came so far; or a rejection."""
        if part == "request_trailers":
            self._read_model()
        self._picked = True
        try:
            endpoints = await self._pick(self._request)
        except BatonError as error:
            self.rejected = True
            return [rejection(error)]
        finally:
            body = self._body
            self.close()
        answers = []
        if self._waiting_head:
            answers.append(ProcessingResponse(request_headers=HeadersResponse()))
        if self._waiting_head or part == "request_body":
            end = part == "request_body" and message.request_body.end_of_stream
            answers += self._passed_on(body, end)
        if part != "request_body":
            answers += self._own_answers(part, message)
        add_destination(answers[0], endpoints)
        return answers

    def _passed_on(self, body: Sequence[bytes], end: bool) -> list[ProcessingResponse]:
        """Return the answers to all pieces of the request's body so far."""
        if self._request_mode not in _PASSED_ON:
            return [ProcessingResponse(request_body=BodyResponse())]
        last = len(body) - 1
        return [
            ProcessingResponse(request_body=piece)
            for at, held in enumerate(body)
            for piece in pieces(held, end=end and at == last)
        ]

    def _own_answers(self, part: str, message: ProcessingRequest) -> list[ProcessingResponse]:
        """Return the answers to a part of the request, with no effect on it."""
        match part:
            case "request_headers":
                return [ProcessingResponse(request_headers=HeadersResponse())]
            case "request_body":
                body = message.request_body
                return self._passed_on([body.body], body.end_of_stream)
            case _:
                return [ProcessingResponse(request_trailers=TrailersResponse())]

    def _take_response(
        self, part: str | None, message: ProcessingRequest
    ) -> list[ProcessingResponse]:
        match part:
            case "response_headers":
                served = served_by(message.metadata_context)
                if served:
                    self._on_served(served)
                return [ProcessingResponse(response_headers=HeadersResponse())]
            case "response_body" if self._response_mode in _PASSED_ON:
                body = message.response_body
                return [
                    ProcessingResponse(response_body=piece)
                    for piece in pieces(body.body, end=body.end_of_stream)
                ]
            case "response_body":
                return [ProcessingResponse(response_body=BodyResponse())]
            case "response_trailers":
                return [ProcessingResponse(response_trailers=TrailersResponse())]
            case _:
                return []  # a part that later releases may add
