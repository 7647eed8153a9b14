"""The one table of errors: gRPC, HTTP and the client all read it, matched on ErrorInfo.reason.

An error travels as google.rpc.Status with ErrorInfo (domain `baton`, a reason of this table),
BadRequest where a field is to blame, RetryInfo where trying again later may help, and QuotaFailure
where a limit of the caller's is reached.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, Protocol

import grpc
from google.rpc import (  # type: ignore[import-untyped,unused-ignore]
    error_details_pb2,
    status_pb2,
)
from grpc import StatusCode as Code
from grpc_status import rpc_status

from baton.host.redaction import redact

DOMAIN = "baton"
_DETAILS: dict[str, Any] = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
    )
}
"""What errors are made of, beside a code and a text, by the name of the message."""
_MAX_MESSAGE = 1024  # status travels in headers, of which clients take 8 KiB in all
_MAX_FIELD = 256
STATUS_DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata that carries the google.rpc.Status."""

HTTP_STATUS: dict[Code, int] = {
    Code.INVALID_ARGUMENT: 400,
    Code.OUT_OF_RANGE: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
    Code.INTERNAL: 500,
    Code.UNKNOWN: 500,
    Code.DATA_LOSS: 500,
}


class Reason(Enum):
    """Every reason: its gRPC code, OpenAI type and code, and HTTP status where the code's differs.

    The text below each is for docs/errors.md: what it means, and what a caller can do.

    The first reason of a gRPC code stands for errors of that code that name no reason.
    """

    INVALID_FIELD = Code.INVALID_ARGUMENT, "invalid_request_error", "invalid_value"
    """A field of the request is invalid; the error names the field and its limit. Correct the
    field."""
    CONTEXT_LENGTH_EXCEEDED = (
        Code.INVALID_ARGUMENT,
        "invalid_request_error",
        "context_length_exceeded",
    )
    """Prompt plus output exceed the model's context, or the limit of its policy, of the API key,
    its project or its tenant. Shorten the prompt, or request fewer tokens."""
    UNSUPPORTED_PARAMETER = Code.INVALID_ARGUMENT, "invalid_request_error", "unsupported_parameter"
    """A parameter, or its value, is not supported. Leave it out."""
    MALFORMED_BODY = Code.INVALID_ARGUMENT, "invalid_request_error", "malformed_body"
    """The body is not JSON, has a value of a wrong type, or arrives in malformed or mostly empty
    chunks; or the message is not the method's protobuf. Correct the body."""
    TEMPLATE_FAILED = Code.INVALID_ARGUMENT, "invalid_request_error", "template_failed"
    """The model's chat template rejected the messages. Use roles and an order that the model
    supports."""
    METHOD_NOT_ALLOWED = Code.INVALID_ARGUMENT, "invalid_request_error", "method_not_allowed", 405
    """The path does not support this HTTP method. Use one that the `allow` header lists."""
    MALFORMED_HEAD = Code.INVALID_ARGUMENT, "invalid_request_error", "malformed_head"
    """The request's head is not HTTP/1.1, does not have exactly one Host, or frames the body by
    something other than one length or `chunked`. Correct the client."""
    BODY_TIMEOUT = Code.INVALID_ARGUMENT, "invalid_request_error", "request_timeout", 408
    """The body did not arrive in time (`http.body_timeout_seconds`). Send it faster."""
    UNSUPPORTED_MEDIA_TYPE = (
        Code.INVALID_ARGUMENT,
        "invalid_request_error",
        "unsupported_media_type",
        415,
    )
    """The body's content type is not JSON, or the body is compressed. Send plain
    `application/json`."""
    OUT_OF_RANGE = Code.OUT_OF_RANGE, "invalid_request_error", "out_of_range"
    """A position is out of range. Correct the request."""
    FAILED_PRECONDITION = Code.FAILED_PRECONDITION, "invalid_request_error", "failed_precondition"
    """The system's state does not permit the request. Do not retry it unchanged."""
    POISON_REQUEST = Code.FAILED_PRECONDITION, "invalid_request_error", "poison_request"
    """Two workers were lost while they computed this request, and at the second loss no other
    request could be the cause. Every frontend rejects the request, identified by tenant, prompt and
    parameters, for ten minutes. Do not retry it unchanged."""
    BATCH_ENDED = Code.FAILED_PRECONDITION, "invalid_request_error", "batch_ended", 409
    """A batch that has ended, or whose output is being written, cannot be cancelled. Read its
    output."""
    PROTOCOL_MISMATCH = Code.FAILED_PRECONDITION, "invalid_request_error", "protocol_mismatch"
    """Two processes use different versions of an internal protocol. Run the same version of
    both."""
    INVALID_API_KEY = Code.UNAUTHENTICATED, "invalid_request_error", "invalid_api_key"
    """The API key is missing, unknown, expired, revoked or replaced. Send a valid key."""
    PERMISSION_DENIED = Code.PERMISSION_DENIED, "permission_error", "permission_denied"
    """The API key does not have the scope, or the request names another tenant or project. Ask the
    operator."""
    MODEL_NOT_ALLOWED = Code.PERMISSION_DENIED, "permission_error", "model_not_allowed"
    """The API key does not permit this model or adapter, whether it exists or not, or the model's
    policy does not permit the tenant or the priority class. Use one that `GET /v1/models` lists."""
    NOT_FOUND = Code.NOT_FOUND, "invalid_request_error", "not_found"
    """The path or the named object does not exist. Correct the name."""
    MODEL_NOT_FOUND = Code.NOT_FOUND, "invalid_request_error", "model_not_found"
    """No worker serves this model, or the model has no such adapter. `GET /v1/models` lists
    both."""
    ALREADY_EXISTS = Code.ALREADY_EXISTS, "conflict_error", "already_exists"
    """An object of this name exists. Choose another name. For requests: one with the same execution
    id is running, or finished within the last minute."""
    ABORTED = Code.ABORTED, "conflict_error", "aborted"
    """Another operation ended this one. Retry it."""
    CONVERSATION_LOCKED = Code.ABORTED, "conflict_error", "conversation_locked"
    """Another response moves the conversation on: of several at once, one does. Read what it said,
    and retry."""
    SLOW_CONSUMER = Code.ABORTED, "conflict_error", "slow_consumer"
    """The client was disconnected because it read nothing for `limits.stall_seconds`, or exceeded
    its buffer (`limits.buffer_bytes`) while a worker could not pause its streams. Read
    continuously."""
    RATE_LIMITED = Code.RESOURCE_EXHAUSTED, "rate_limit_error", "rate_limit_exceeded"
    """The request exceeds a limit of the API key, its project or its tenant, which the error names,
    or too many requests are pending on one HTTP connection. Wait for `retry-after`, or for the
    pending responses. Without `retry-after`, the request alone exceeds the limit: shorten it."""
    INSUFFICIENT_QUOTA = Code.RESOURCE_EXHAUSTED, "insufficient_quota", "insufficient_quota"
    """The request's maximum cost exceeds this month's remaining budget of the API key, its project
    or its tenant, which the error names. With `retry-after`, running requests may release enough
    budget when they end. Without, request fewer tokens, raise the budget, or wait for the next
    month. Or the tenant has stored as many conversations or bytes as it may: delete some, or raise
    the limit."""
    NO_CAPACITY = Code.RESOURCE_EXHAUSTED, "rate_limit_error", "no_capacity"
    """Memory, KV pages or slots are exhausted. Retry later, or add capacity."""
    BODY_TOO_LARGE = Code.RESOURCE_EXHAUSTED, "invalid_request_error", "body_too_large", 413
    """A body exceeds `http.max_body_bytes` or `limits.max_body_values`, or a gRPC message exceeds
    `grpc.max_message_bytes` or `limits.max_message_fields`. Send less, or raise the limit."""
    HEAD_TOO_LARGE = Code.RESOURCE_EXHAUSTED, "invalid_request_error", "head_too_large", 431
    """The request's head exceeds `http.max_head_bytes` or `http.max_head_fields`. Both also limit
    the trailers and chunk extensions of a chunked body. gRPC metadata is limited to 16 KiB. Send
    fewer or shorter headers."""
    CANCELLED = Code.CANCELLED, "cancelled", "cancelled"
    """The caller cancelled the request."""
    UNIMPLEMENTED = Code.UNIMPLEMENTED, "unsupported", "unsupported"
    """The method does not exist, or needs something that this cluster does not have: usage needs
    `state.url`. Update the client or the server, or configure what is missing."""
    UNAVAILABLE = Code.UNAVAILABLE, "server_error", "unavailable"
    """The process cannot serve now, or is unreachable. Retry after a moment."""
    OVERLOADED = Code.UNAVAILABLE, "server_error", "overloaded"
    """All queues are full (`limits.max_requests`, a router's queue or the longest wait), or the
    process has no memory for the request. Retry later, or add workers."""
    DRAINING = Code.UNAVAILABLE, "server_error", "draining"
    """The process is draining. Retry: another process serves the request."""
    NO_WORKER = Code.UNAVAILABLE, "server_error", "no_worker"
    """No worker of the model is alive and ready, and none appeared while the request waited
    (`limits.wait_for_worker_seconds`), or too many requests wait (`limits.max_waiting`). Check
    `baton status`."""
    MODEL_LOADING = Code.UNAVAILABLE, "server_error", "model_loading"
    """The frontend could not fetch the model's tokenizer from its workers in time. Retry after a
    moment."""
    WORKER_LOST = Code.UNAVAILABLE, "server_error", "worker_lost"
    """The request's worker was lost, and so were the workers that took over. Retry."""
    STREAM_LOST = Code.UNAVAILABLE, "server_error", "stream_lost"
    """The worker of a sampled stream was lost after its first tokens, and no other worker samples
    the same tokens: the model has no exact continuation. Send the request again."""
    DEADLINE = Code.DEADLINE_EXCEEDED, "timeout", "deadline_exceeded"
    """The request exceeded its deadline. Allow more time, or request fewer tokens."""
    INTERNAL = Code.INTERNAL, "server_error", "internal"
    """A bug in Baton; the log has details under the request id. Report it."""
    UNKNOWN = Code.UNKNOWN, "server_error", "unknown"
    """An error without a known reason, usually from a proxy or another version."""
    DATA_LOSS = Code.DATA_LOSS, "server_error", "data_loss"
    """Data is damaged and could not be replaced. Retry, and check the logs."""

    def __init__(
        self, code: Code, openai_type: str, openai_code: str, http_status: int | None = None
    ) -> None:
        self.code = code
        self.openai_type = openai_type
        self.openai_code = openai_code
        self.http_status = HTTP_STATUS[code] if http_status is None else http_status

    @classmethod
    def of_code(cls, code: Code) -> "Reason":
        """Return the reason of errors that have no more than a gRPC code."""
        return _BY_CODE.get(code, cls.UNKNOWN)


_BY_CODE = {reason.code: reason for reason in reversed(Reason)}
"""The first of each code."""


@dataclass(frozen=True, slots=True)
class QuotaViolation:
    """The limit of a caller that a request does not fit in: google.rpc.QuotaFailure."""

    subject: str
    """Whose it is: `key:key_0123456789abcdef`, `project:…`, `tenant:acme`."""
    metric: str
    """What it counts: `requests_per_minute`, `tokens_per_minute`, `requests_at_once`,
    `budget_nanodollars_per_month`, `stored_conversations`, `stored_bytes`."""
    value: int
    """How much is allowed."""


class BatonError(Exception):
    """An error that a caller is told, with a reason of the table.

    Args:
        reason: which row of the table.
        message: for the caller; names the limit that was crossed, no secrets and no internals.
        field: the request's field to blame, in the caller's words, for example `messages[0].role`.
        retry_after: seconds after which trying again may help.
        quota: the limit of the caller that is reached.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
        quota: QuotaViolation | None = None,
    ) -> None:
        message = redact(message)
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_after = retry_after
        self.quota = quota

    @property
    def code(self) -> Code:
        return self.reason.code

    @property
    def http_status(self) -> int:
        return self.reason.http_status

    @property
    def openai_type(self) -> str:
        return self.reason.openai_type

    @property
    def openai_code(self) -> str:
        return self.reason.openai_code

    def to_status(self) -> status_pb2.Status:
        """Return the error for gRPC; overlong texts are cut so that it fits into headers."""
        message = _cut(self.message, _MAX_MESSAGE)
        status = status_pb2.Status(code=self.code.value[0], message=message)
        status.details.add().Pack(
            error_details_pb2.ErrorInfo(reason=self.reason.name, domain=DOMAIN)
        )
        if self.field is not None:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=_cut(self.field, _MAX_FIELD), description=message
            )
            status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.retry_after is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromNanoseconds(math.ceil(self.retry_after * 1e9))
            status.details.add().Pack(retry)
        if self.quota is not None:
            violated = error_details_pb2.QuotaFailure.Violation(
                subject=self.quota.subject,
                description=message,
                quota_metric=self.quota.metric,
                quota_value=self.quota.value,
            )
            status.details.add().Pack(error_details_pb2.QuotaFailure(violations=[violated]))
        return status

    def to_openai(self) -> dict[str, Any]:
        """Return the body of an OpenAI error."""
        return {
            "error": {
                "message": self.message,
                "type": self.openai_type,
                "param": self.field,
                "code": self.openai_code,
            }
        }

    @classmethod
    def from_status(cls, status: status_pb2.Status) -> "BatonError":
        """Return the error of a status; the reason decides, else the code."""
        reason = Reason.of_code(code_of(status.code))
        field: str | None = None
        retry_after: float | None = None
        quota: QuotaViolation | None = None
        for detail in status.details:
            kind = _DETAILS.get(detail.type_url.rpartition("/")[2])
            if kind is None:
                continue
            found = kind()
            detail.Unpack(found)
            if isinstance(found, error_details_pb2.ErrorInfo):
                if found.domain == DOMAIN:
                    reason = Reason.__members__.get(found.reason, reason)
            elif isinstance(found, error_details_pb2.RetryInfo):
                retry_after = found.retry_delay.ToNanoseconds() / 1e9
            elif isinstance(found, error_details_pb2.BadRequest):
                if found.field_violations:
                    field = found.field_violations[0].field
            elif found.violations:
                one = found.violations[0]
                quota = QuotaViolation(one.subject, one.quota_metric, one.quota_value)
        return cls(reason, status.message, field=field, retry_after=retry_after, quota=quota)

    @classmethod
    def from_rpc_error(cls, error: grpc.RpcError) -> "BatonError":
        """Return the error of a failed call, of gRPC's synchronous and asyncio API alike."""
        if not isinstance(error, grpc.aio.AioRpcError | grpc.Call):
            return cls(Reason.UNKNOWN, str(error))
        return cls.from_trailers(error.trailing_metadata(), error.code(), error.details())

    @classmethod
    def from_trailers(cls, metadata: Any, code: Code, details: str | None) -> "BatonError":
        """Return the error of a call that ended so, seen from either side.

        Args:
            metadata: its trailing metadata, pairs or None; a status in there wins.
            code: its status code.
            details: what was said with it; empty or None: the code's name.
        """
        for key, value in metadata or ():
            if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
                return cls.from_status(status_pb2.Status.FromString(value))
        return cls(Reason.of_code(code), details or code.name)


def no_memory() -> BatonError:
    """Return the error of a request that the process has no memory for (MemoryError)."""
    text = "the process has no memory for this request now; try again later, or send less"
    return BatonError(Reason.OVERLOADED, text, retry_after=1.0)


def invalid_field(field: str, message: str) -> BatonError:
    """Return INVALID_FIELD for one field of a request.

    Args:
        field: its name, in the caller's words.
        message: what is wrong with its value, and the limit.
    """
    return BatonError(Reason.INVALID_FIELD, f"{field}: {message}", field=field)


class AbortableContext(Protocol):
    """The part of grpc.aio's servicer context that ends a call."""

    async def abort(
        self, code: Code, details: str = ..., trailing_metadata: Any = ...
    ) -> NoReturn: ...


async def abort(context: AbortableContext, error: BatonError) -> NoReturn:
    """End a call of a grpc.aio server with the error and its details."""
    status = rpc_status.to_status(error.to_status())
    await context.abort(status.code, status.details, status.trailing_metadata)


def code_of(number: int) -> Code:
    """Return gRPC's code of a number in a google.rpc.Status; UNKNOWN for any other."""
    return _CODES.get(number, Code.UNKNOWN)


_CODES: dict[int, Code] = {code.value[0]: code for code in Code}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
