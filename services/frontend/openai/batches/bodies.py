"""The body that creates a batch, and the objects of batches."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from baton.batches.records import StoredBatch
from baton.errors import invalid_field
from baton.files.records import file_text
from baton.files.store import seconds_of
from services.frontend.http.json_body import decode_body
from services.frontend.openai.batches.endpoints import ENDPOINTS
from services.frontend.openai.files.handlers import expiry_of
from services.frontend.openai.metadata import check_metadata

Windows = Mapping[str, int]
"""Seconds by completion window."""


class ExpiresAfter(msgspec.Struct, forbid_unknown_fields=True):
    anchor: str
    seconds: int


class CreateBatch(msgspec.Struct, forbid_unknown_fields=True):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None

    @property
    def output_seconds(self) -> int | None:
        """Seconds after which its output expires; None: never."""
        expires = self.output_expires_after
        if expires is None:
            return None
        return expiry_of(expires.anchor, expires.seconds, "output_expires_after")


_create = msgspec.json.Decoder(CreateBatch)


def read_batch(data: bytes, windows: Windows) -> CreateBatch:
    """Decode a new batch.

    Args:
        data: the body.
        windows: that batches may have.

    Raises:
        BatonError: it is malformed, or a field has another value than is supported.
    """
    body = decode_body(_create, data)
    check_batch(body, windows)
    return body


def check_batch(body: CreateBatch, windows: Windows) -> None:
    """Check the values of a new batch.

    Raises:
        BatonError: a field has another value than is supported.
    """
    if body.endpoint not in ENDPOINTS:
        raise invalid_field("endpoint", f"must be one of {', '.join(ENDPOINTS)}")
    if body.completion_window not in windows:
        raise invalid_field(
            "completion_window",
            f"must be one of {', '.join(windows)} (batches.completion_windows)",
        )
    check_metadata(body.metadata)
    _ = body.output_seconds


def batch_object(batch: StoredBatch, estimated: int | None) -> dict[str, Any]:
    """Return a batch in OpenAI's form, and when it will be complete; None: that is not known."""
    errors = None
    if batch.errors:
        errors = {"object": "list", "data": msgspec.Raw(batch.errors.encode())}
    return {
        "id": batch.text,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": errors,
        "input_file_id": file_text(batch.input_file),
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file and file_text(batch.output_file),
        "error_file_id": batch.error_file and file_text(batch.error_file),
        "created_at": seconds_of(batch.created_at),
        "in_progress_at": seconds_of(batch.in_progress_at),
        "expires_at": seconds_of(batch.expires_at),
        "estimated_completion": estimated,
        "finalizing_at": seconds_of(batch.finalizing_at),
        "completed_at": _ended(batch, "completed"),
        "failed_at": _ended(batch, "failed"),
        "expired_at": _ended(batch, "expired"),
        "cancelling_at": seconds_of(batch.cancelling_at),
        "cancelled_at": _ended(batch, "cancelled"),
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "usage": {
            "input_tokens": batch.prompt_tokens,
            "input_tokens_details": {"cached_tokens": batch.cached_tokens},
            "output_tokens": batch.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": batch.prompt_tokens + batch.output_tokens,
        },
        "metadata": msgspec.Raw(batch.metadata.encode()),
    }


def _ended(batch: StoredBatch, status: str) -> int | None:
    moment: datetime | None = batch.ended_at if batch.status == status else None
    return seconds_of(moment)
