"""Which web pages may read answers."""

from typing import Any

import pytest

from services.frontend.http.asgi import Message, Receive, Scope, Send
from services.frontend.http.cors import CorsMiddleware

PAGE = "https://chat.example.org"


async def answer(_: Scope, __: Receive, send: Send) -> None:
    headers = [(b"x-request-id", b"r")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def ask(origins: tuple[str, ...], method: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of the answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/", "headers": given}
    await CorsMiddleware(answer, origins)(scope, receive, send)
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((PAGE,), PAGE, PAGE),
        ((PAGE, "http://localhost:3000"), "http://localhost:3000", "http://localhost:3000"),
        (("*",), PAGE, "*"),
        ((PAGE,), "https://other.example.org", None),
        ((PAGE,), "null", None),
        ((), PAGE, None),
    ],
)
async def test_an_answer_says_which_page_may_read_it(
    origins: tuple[str, ...], origin: str, allowed: str | None
) -> None:
    status, headers = await ask(origins, "POST", origin=origin)
    assert status == 200
    assert headers.get("access-control-allow-origin") == allowed
    assert ("x-request-id" in headers.get("access-control-expose-headers", "")) == bool(allowed)
    assert headers.get("vary") == (None if allowed in (None, "*") else "origin")
    _, without = await ask(origins, "POST")
    assert without == {"x-request-id": "r"}


async def test_a_browser_is_told_before_it_asks() -> None:
    asked = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization, content-type",
    }
    status, headers = await ask((PAGE,), "OPTIONS", origin=PAGE, **asked)
    assert status == 204
    assert headers["access-control-allow-origin"] == PAGE
    assert "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-headers"] == "authorization, content-type"
    # Of another page it is a request like any other: what is behind says what it thinks of it.
    status, headers = await ask((PAGE,), "OPTIONS", origin="https://other.example.org", **asked)
    assert (status, headers) == (200, {"x-request-id": "r"})
