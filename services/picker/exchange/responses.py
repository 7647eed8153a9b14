"""Messages to a gateway.

The destination is in a header and in dynamic metadata, as the endpoint picker protocol asks:
https://github.com/kubernetes-sigs/gateway-api-inference-extension, docs/proposals/004.
"""

from collections.abc import Iterator, Sequence

import msgspec

from baton.errors import BatonError
from baton.internal.envoy import base_pb2, http_status_pb2
from baton.internal.envoy.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    ImmediateResponse,
    ProcessingResponse,
    StreamedBodyResponse,
)

DESTINATION = "x-gateway-destination-endpoint"
DESTINATION_NAMESPACE = "envoy.lb"
MAX_PIECE_BYTES = 64 * 1024
"""Largest piece of a body to send back, as Envoy recommends for FULL_DUPLEX_STREAMED."""


def pieces(body: bytes, *, end: bool) -> Iterator[BodyResponse]:
    """Yield a body, or a piece of one, to be passed on.

    Args:
        body: the bytes; none are passed on too, for they may end the body.
        end: whether the body ends with them.
    """
    for begin in range(0, max(1, len(body)), MAX_PIECE_BYTES):
        stop = begin + MAX_PIECE_BYTES
        piece = StreamedBodyResponse(body=body[begin:stop], end_of_stream=end and stop >= len(body))
        mutation = BodyMutation(streamed_response=piece)
        yield BodyResponse(response=CommonResponse(body_mutation=mutation))


def add_destination(response: ProcessingResponse, endpoints: Sequence[str]) -> None:
    """Add the endpoints to the first response of a request: the first one, then fallbacks."""
    value = ",".join(endpoints)
    namespace = response.dynamic_metadata.get_or_create_struct(DESTINATION_NAMESPACE)
    namespace[DESTINATION] = value
    match response.WhichOneof("response"):
        case "request_headers":
            head: HeadersResponse | BodyResponse = response.request_headers
        case "request_body":
            head = response.request_body
        case _:
            return  # trailers: the head cannot be changed any more
    _set(head.response.header_mutation, DESTINATION, value)
    # Some gateways route by the header.
    head.response.clear_route_cache = True


def rejection(error: BatonError) -> ProcessingResponse:
    """Return the response to the client of a request that gets no endpoint."""
    status = http_status_pb2.StatusCode.ValueType(error.http_status)
    immediate = ImmediateResponse(
        status=http_status_pb2.HttpStatus(code=status),
        body=msgspec.json.encode(error.to_openai()),
        details=error.openai_code,
    )
    _set(immediate.headers, "content-type", "application/json")
    if error.retry_after is not None:
        _set(immediate.headers, "retry-after", str(max(1, round(error.retry_after))))
        _set(immediate.headers, "retry-after-ms", str(round(error.retry_after * 1000)))
    return ProcessingResponse(immediate_response=immediate)


def _set(mutation: HeaderMutation, name: str, value: str) -> None:
    # Also over a header of the client's, who must not choose the destination.
    option = base_pb2.HeaderValueOption
    mutation.set_headers.add(
        header=base_pb2.HeaderValue(key=name, raw_value=value.encode()),
        append_action=option.OVERWRITE_IF_EXISTS_OR_ADD,
    )
