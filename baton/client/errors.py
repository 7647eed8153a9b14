"""Exceptions that a call can raise.

BatonClientError
├── ApiError                    the cluster rejected or failed the request
│   ├── InvalidRequestError     a field is wrong; `.field` names it
│   │   └── ContextLengthError  prompt plus output do not fit the model's context
│   ├── AuthenticationError     the API key is missing or wrong
│   ├── PermissionDeniedError   the API key does not allow this
│   ├── NotFoundError           no such model
│   ├── CapacityError           no capacity now; `.retry_after` says when to retry
│   ├── UnavailableError        overloaded, draining, no worker, or the worker was lost
│   ├── DeadlineError           the call's time ran out
│   ├── CancelledError          the cluster cancelled the request
│   ├── ConflictError           the stream was cut, for instance because it was not read
│   ├── UnsupportedError        the cluster does not support this
│   └── InternalError           a defect of the cluster; the request id helps to find it
├── ConnectionFailedError       the frontend cannot be reached, or was lost mid-call
├── ProtocolError               the response violates the contract of baton.v1
└── StreamClosedError           a stream was read after it was closed
"""

from typing import Any

import grpc

from baton.errors import STATUS_DETAILS_KEY, BatonError, Reason


class BatonClientError(Exception):
    """Base of all exceptions that the client itself raises."""


class ApiError(BatonClientError):
    """The cluster rejected or failed a request.

    Attributes:
        message: one sentence for a person.
        reason: the row of Baton's error table, e.g. `CONTEXT_LENGTH_EXCEEDED`.
        code: the gRPC status code.
        field: the invalid field of the request, if any.
        retry_after: seconds after which to retry, if the cluster reported a time.
        request_id: names the request in the cluster's logs and traces.
    """

    def __init__(self, error: BatonError, request_id: str) -> None:
        super().__init__(error.message)
        self.message = error.message
        self.reason = error.reason.name
        self.code = error.code
        self.field = error.field
        self.retry_after = error.retry_after
        self.request_id = request_id


class InvalidRequestError(ApiError):
    """A field of the request is wrong."""


class ContextLengthError(InvalidRequestError):
    """Prompt plus output do not fit the model's context."""


class AuthenticationError(ApiError):
    """The API key is missing or wrong."""


class PermissionDeniedError(ApiError):
    """The API key does not allow this."""


class NotFoundError(ApiError):
    """The requested resource does not exist."""


class CapacityError(ApiError):
    """There is no capacity for the request now."""


class UnavailableError(ApiError):
    """The cluster is overloaded, draining or without workers, or the worker was lost."""


class DeadlineError(ApiError):
    """The call's time ran out."""


class CancelledError(ApiError):
    """The cluster cancelled the request."""


class ConflictError(ApiError):
    """The stream was cut, for example because it was not read."""


class UnsupportedError(ApiError):
    """The cluster does not support this."""


class InternalError(ApiError):
    """The cluster has a defect."""


class ConnectionFailedError(BatonClientError):
    """The frontend cannot be reached, or the connection was lost before the call ended."""

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id


class ProtocolError(BatonClientError):
    """The response violates the contract of baton.v1."""


class StreamClosedError(BatonClientError):
    """A stream was read after it was closed."""


_BY_CODE: dict[grpc.StatusCode, type[ApiError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequestError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: CapacityError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.ABORTED: ConflictError,
    grpc.StatusCode.ALREADY_EXISTS: ConflictError,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedError,
}


_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL)


def api_error(error: BatonError, request_id: str) -> ApiError:
    """Return the exception for a row of the error table."""
    if error.reason is Reason.CONTEXT_LENGTH_EXCEEDED:
        return ContextLengthError(error, request_id)
    if error.reason is Reason.BODY_TOO_LARGE:
        return InvalidRequestError(error, request_id)
    return _BY_CODE.get(error.code, InternalError)(error, request_id)


def client_error(failure: grpc.RpcError, request_id: str) -> BatonClientError:
    """Return the exception for a failed call.

    An error without Baton's details was not reported by the cluster. UNAVAILABLE and CANCELLED mean
    that the connection broke or the frontend's process ended (the client's own cancelling never
    gets here), and so does INTERNAL: grpc.aio reports it when a connection breaks during a write.
    """
    code = failure.code()
    trailers: Any = failure.trailing_metadata() or ()
    if STATUS_DETAILS_KEY not in dict(trailers):
        if code in _LOST:
            return ConnectionFailedError(failure.details() or "connection lost", request_id)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:  # gRPC's own messages vary
            error = BatonError(
                Reason.DEADLINE, "the response was not complete before the call's deadline"
            )
            return api_error(error, request_id)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:  # gRPC itself rejects longer messages
            error = BatonError(Reason.BODY_TOO_LARGE, failure.details() or "message too long")
            return api_error(error, request_id)
    return api_error(BatonError.from_rpc_error(failure), request_id)
