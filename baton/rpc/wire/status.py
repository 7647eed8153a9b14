"""The status of a call as trailers."""

from baton.errors import STATUS_DETAILS_KEY, BatonError, Reason, code_of
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.wire.metadata import (
    Metadata,
    decode_message,
    encode_message,
    metadata_fields,
    read_metadata,
)

OK_TRAILERS = encode(((b"grpc-status", b"0"),))
"""The header block of a call that succeeded and has no trailing metadata."""
_BY_HTTP_STATUS = {
    b"400": Reason.INTERNAL,
    b"401": Reason.of_code(code_of(16)),
    b"403": Reason.of_code(code_of(7)),
    b"404": Reason.UNIMPLEMENTED,
    b"429": Reason.UNAVAILABLE,
    b"502": Reason.UNAVAILABLE,
    b"503": Reason.UNAVAILABLE,
    b"504": Reason.UNAVAILABLE,
}
"""The table of gRPC's http-grpc-status-mapping.md."""


def trailer_fields(code: int, message: str, metadata: Metadata = ()) -> Headers:
    """Return the fields of a status.

    Args:
        code: gRPC's number.
        message: for people; may be empty.
        metadata: trailing metadata.
    """
    fields: Headers = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", encode_message(message)))
    fields += metadata_fields(metadata)
    return fields


def error_trailers(error: BatonError) -> tuple[int, str, Metadata]:
    """Return the code, message and trailing metadata that carry an error with its details."""
    status = error.to_status()
    return status.code, status.message, ((STATUS_DETAILS_KEY, status.SerializeToString()),)


def read_status(fields: Headers) -> BatonError | None:
    """Return the error in trailers; None if the call succeeded.

    Args:
        fields: trailers, or the head of a response that has nothing else.
    """
    values = dict(fields)
    status = values.get(b"grpc-status")
    if status == b"0":
        return None
    if status is None or not status.isdigit():
        http_status = values.get(b":status", b"200")
        reason = _BY_HTTP_STATUS.get(http_status, Reason.UNKNOWN)
        return BatonError(reason, f"no gRPC status; HTTP status {http_status.decode()}")
    message = decode_message(values.get(b"grpc-message", b""))
    return BatonError.from_trailers(read_metadata(fields), code_of(int(status)), message)
