"""The table of errors, and the ways an error travels."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from baton.errors import BatonError, QuotaViolation, Reason, code_of

TABLE = {
    StatusCode.INVALID_ARGUMENT: (400, "invalid_request_error"),
    StatusCode.OUT_OF_RANGE: (400, "invalid_request_error"),
    StatusCode.FAILED_PRECONDITION: (400, "invalid_request_error"),
    StatusCode.UNAUTHENTICATED: (401, "invalid_request_error"),
    StatusCode.PERMISSION_DENIED: (403, "permission_error"),
    StatusCode.NOT_FOUND: (404, "invalid_request_error"),
    StatusCode.ALREADY_EXISTS: (409, "conflict_error"),
    StatusCode.ABORTED: (409, "conflict_error"),
    StatusCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    StatusCode.CANCELLED: (499, "cancelled"),
    StatusCode.UNIMPLEMENTED: (501, "unsupported"),
    StatusCode.UNAVAILABLE: (503, "server_error"),
    StatusCode.DEADLINE_EXCEEDED: (504, "timeout"),
    StatusCode.INTERNAL: (500, "server_error"),
    StatusCode.UNKNOWN: (500, "server_error"),
    StatusCode.DATA_LOSS: (500, "server_error"),
}

STATUS_OF_ITS_OWN = {
    Reason.BODY_TOO_LARGE: 413,
    Reason.UNSUPPORTED_MEDIA_TYPE: 415,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.BODY_TIMEOUT: 408,
    Reason.HEAD_TOO_LARGE: 431,
    Reason.BATCH_ENDED: 409,  # as OpenAI answers
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_follows_the_conventions_of_its_code(reason):
    http_status, openai_type = TABLE[reason.code]
    if reason in (Reason.BODY_TOO_LARGE, Reason.HEAD_TOO_LARGE):
        openai_type = "invalid_request_error"  # no smaller rate would help
    if reason is Reason.INSUFFICIENT_QUOTA:
        openai_type = "insufficient_quota"  # as OpenAI calls it
    assert reason.openai_type == openai_type
    assert reason.http_status == STATUS_OF_ITS_OWN.get(reason, http_status)


def test_every_code_has_a_reason_for_errors_that_name_none():
    for code in StatusCode:
        if code is not StatusCode.OK:
            assert Reason.of_code(code).code is code


@pytest.mark.parametrize("reason", Reason)
def test_status_and_back_keeps_everything(reason):
    sent = BatonError(reason, "max_tokens is 0", field="max_tokens", retry_after=1.5)
    got = BatonError.from_status(sent.to_status())
    assert (got.reason, got.message, got.field, got.retry_after) == (
        reason,
        "max_tokens is 0",
        "max_tokens",
        1.5,
    )


def test_the_limit_that_is_reached_travels() -> None:
    quota = QuotaViolation("tenant:acme", "tokens_per_minute", 5000)
    sent = BatonError(Reason.RATE_LIMITED, "5000 tokens per minute", retry_after=2.0, quota=quota)
    got = BatonError.from_status(sent.to_status())
    assert (got.quota, got.retry_after) == (quota, 2.0)
    assert BatonError.from_status(BatonError(Reason.RATE_LIMITED, "x").to_status()).quota is None


def test_status_without_details_goes_by_its_code():
    status = status_pb2.Status(code=StatusCode.NOT_FOUND.value[0], message="nothing")
    assert BatonError.from_status(status).reason is Reason.NOT_FOUND
    assert code_of(999) is StatusCode.UNKNOWN


@pytest.mark.parametrize(("domain", "reason"), [("baton", "BORN_LATER"), ("other", "DRAINING")])
def test_reason_that_is_not_ours_or_not_known_yet_goes_by_code(domain, reason):
    status = status_pb2.Status(code=StatusCode.UNAVAILABLE.value[0], message="later")
    info = error_details_pb2.ErrorInfo(domain=domain, reason=reason)
    status.details.add().Pack(info)
    assert BatonError.from_status(status).reason is Reason.UNAVAILABLE


def test_overlong_text_is_cut_to_fit_into_headers():
    error = BatonError(Reason.MODEL_NOT_FOUND, "x" * 100_000, field="é" * 100_000)
    assert len(error.to_status().SerializeToString()) < 6_000
    assert len(error.message) == 100_000


def test_openai_body():
    error = BatonError(Reason.CONTEXT_LENGTH_EXCEEDED, "prompt of 9 tokens", field="messages")
    assert error.http_status == 400
    assert error.to_openai() == {
        "error": {
            "message": "prompt of 9 tokens",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


def test_call_error_without_code_is_unknown():
    assert BatonError.from_rpc_error(grpc.RpcError("odd")).reason is Reason.UNKNOWN
