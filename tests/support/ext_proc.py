"""Messages of Envoy's external processing, as gateways send them, and what is in the answers."""

from collections.abc import Iterable, Mapping, Sequence

from baton.internal.envoy import base_pb2, external_processor_pb2
from baton.internal.envoy.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from baton.internal.envoy.processing_mode_pb2 import ProcessingMode

DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
BUFFERED = ProcessingMode.BUFFERED
STREAMED = ProcessingMode.STREAMED
NONE = ProcessingMode.NONE
JSON = {"content-type": "application/json"}
DESTINATION = "x-gateway-destination-endpoint"


def head(
    headers: Mapping[str, str] = JSON,
    *,
    end: bool = False,
    mode: ProcessingMode.BodySendMode.ValueType | None = DUPLEX,
    subset: Sequence[str] | str | None = None,
) -> ProcessingRequest:
    """The head of a request; `mode` None: of a gateway that does not say how it sends bodies."""
    message = ProcessingRequest()
    message.request_headers.end_of_stream = end
    for name, value in {":method": "POST", ":path": "/v1/completions", **headers}.items():
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    if mode is not None:
        message.protocol_config.request_body_mode = mode
        message.protocol_config.response_body_mode = mode
    if subset is not None:
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint["x-gateway-destination-endpoint-subset"] = (
            subset if isinstance(subset, str) else list(subset)
        )
    return message


def body(data: bytes, *, end: bool = True) -> ProcessingRequest:
    """A piece of a request's body."""
    sent = external_processor_pb2.HttpBody(body=data, end_of_stream=end)
    return ProcessingRequest(request_body=sent)


def trailers() -> ProcessingRequest:
    return ProcessingRequest(request_trailers=external_processor_pb2.HttpTrailers())


def response_head(*, end: bool = False, served: str = "") -> ProcessingRequest:
    """The head of a response, and which endpoint it is of."""
    message = ProcessingRequest()
    message.response_headers.end_of_stream = end
    if served:
        known = message.metadata_context.filter_metadata["envoy.lb"]
        known["x-gateway-destination-endpoint-served"] = served
    return message


def response_body(data: bytes, *, end: bool = False) -> ProcessingRequest:
    sent = external_processor_pb2.HttpBody(body=data, end_of_stream=end)
    return ProcessingRequest(response_body=sent)


def response_trailers() -> ProcessingRequest:
    return ProcessingRequest(response_trailers=external_processor_pb2.HttpTrailers())


def destination(answers: Iterable[ProcessingResponse]) -> str:
    """The endpoints that answers name: in one header and in metadata, and they are the same."""
    found = []
    for answer in answers:
        kind = answer.WhichOneof("response")
        if kind in ("request_headers", "request_body"):
            mutation = getattr(answer, kind).response.header_mutation
            for option in mutation.set_headers:
                assert option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
                assert option.header.key == DESTINATION
                found.append(option.header.raw_value.decode())
        if "envoy.lb" in answer.dynamic_metadata.fields:
            values = answer.dynamic_metadata.fields["envoy.lb"].struct_value
            found.append(values.fields[DESTINATION].string_value)
    assert len(found) == 2, found
    assert len(set(found)) == 1, found
    return found[0]


def passed_on(answers: Iterable[ProcessingResponse]) -> tuple[bytes, bool]:
    """The body of the request that goes on, and whether it ends."""
    pieces = [
        one.request_body.response.body_mutation.streamed_response
        for one in answers
        if one.WhichOneof("response") == "request_body"
    ]
    assert not any(piece.end_of_stream for piece in pieces[:-1])
    return b"".join(piece.body for piece in pieces), bool(pieces) and pieces[-1].end_of_stream
