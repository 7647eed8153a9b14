"""Responses sent without the application, which end their connection."""

from http import HTTPStatus

import msgspec

from baton.errors import BatonError


def refusal(error: BatonError, identity: str) -> bytes:
    """Return the complete response for an error.

    Args:
        error: the error.
        identity: id of the request.
    """
    body = msgspec.json.encode(error.to_openai())
    head = (
        f"HTTP/1.1 {error.http_status} {HTTPStatus(error.http_status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {identity}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
