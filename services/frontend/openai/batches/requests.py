"""`/v1/batch`: a batch of requests that come in its body, without a file of the client's."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from baton.host.networks import AllowedNetworks
from services.frontend.http.json_body import decode_body
from services.frontend.openai.batches.bodies import CreateBatch, Windows, check_batch
from services.frontend.openai.batches.endpoints import CHAT
from services.frontend.openai.webhooks.bodies import check_url

FILE_NAME = "requests.jsonl"


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    body: msgspec.Raw
    custom_id: str | None = None
    method: str = "POST"
    url: str | None = None


class RequestsBody(msgspec.Struct, forbid_unknown_fields=True):
    requests: list[BatchRequest]
    endpoint: str = CHAT
    callback_url: str = ""
    priority: Literal["batch"] = "batch"
    """The class; batches have no other one."""
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None

    def batch_of(self, file: str) -> CreateBatch:
        """Return the batch of a file with these requests."""
        return CreateBatch(file, self.endpoint, self.completion_window, self.metadata)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of that file; requests without an id have their position, from 1."""
        encode = msgspec.json.encode
        for at, request in enumerate(self.requests, 1):
            line: dict[str, Any] = {
                "custom_id": f"request-{at}" if request.custom_id is None else request.custom_id,
                "method": request.method,
                "url": self.endpoint if request.url is None else request.url,
                "body": request.body,
            }
            yield encode(line) + b"\n"


_decode = msgspec.json.Decoder(RequestsBody)


def read_requests(
    data: bytes, max_lines: int, windows: Windows, networks: AllowedNetworks | None
) -> RequestsBody:
    """Decode a batch's requests.

    Args:
        data: the body.
        max_lines: of a batch.
        windows: that batches may have.
        networks: where callbacks may go; None: webhooks are not enabled.

    Raises:
        BatonError: it is malformed, or a field has another value than is supported.
    """
    body = decode_body(_decode, data)
    if not 0 < len(body.requests) <= max_lines:
        raise invalid_field("requests", f"must have 1 to {max_lines} requests (batches.max_lines)")
    check_batch(body.batch_of(""), windows)
    if body.callback_url:
        if networks is None:
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                "callback_url is not supported here: webhooks.enabled is off",
                field="callback_url",
            )
        check_url(body.callback_url, networks, "callback_url")
    return body
