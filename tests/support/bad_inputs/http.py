"""Cases for the HTTP API."""

import asyncio
import json
from typing import Any

from baton.errors import Reason
from tests.support.bad_inputs.case import Case, pieces
from tests.support.clock import within

PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions", "tokenize": "/v1/tokenize"}
SECONDS = 20.0


class HttpPlayer:
    """Sends cases to an HTTP server, each on its own connection.

    Args:
        url: the server's URL.
        model: the model of requests whose case names none.
    """

    def __init__(self, url: str, model: str) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)
        self._model = model

    def prepare(self, case: Case) -> bytes:
        """Return the bytes that a case sends."""
        return pieces(case.spec["raw"]) if case.kind == "raw" else self._request(case)

    async def play(self, case: Case, data: bytes) -> str:
        """Send a prepared case; return the result in the terms of its `expect`."""
        answers = await self._exchange(data, case)
        if case.kind == "raw":
            return ", ".join(self._shown(status, body) for status, body in answers) or "closed"
        ((status, body),) = answers
        if status == 200:
            return "OK"
        reason = self._reason(status, body)
        return f"{reason.name} {body['error']['param'] or ''}".strip()

    def _request(self, case: Case) -> bytes:
        if case.kind == "body":
            path, body = PATHS[case.spec["path"]], pieces(case.spec["body"])
            body = body.replace(b"@MODEL", self._model.encode())
        else:
            path, asked = PATHS[case.kind], base(case.kind, self._model) | case.spec[case.kind]
            body = json.dumps(asked).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _exchange(self, data: bytes, case: Case) -> list[tuple[int, Any]]:
        """Send bytes; return the status and body of each response, up to the expected number."""
        count = 1 if case.kind != "raw" else len(case.expect[0].split(", "))
        answers = []
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        try:
            writer.write(data)
            if case.spec.get("then_close"):
                writer.write_eof()
            async with within(SECONDS):
                while len(answers) < count and (answer := await _answer(reader)) is not None:
                    status, closes, body = answer
                    answers.append((status, body))
                    if closes:  # in order, so that the response is not lost
                        assert await reader.read() == b""
                        break
        except ConnectionResetError:
            raise AssertionError(f"reset after {answers}") from None
        finally:
            writer.transport.abort()
        return answers

    def _shown(self, status: int, body: Any) -> str:
        if status < 400:
            return str(status)
        self._reason(status, body)
        return f"{status} {body['error']['code']}"

    @staticmethod
    def _reason(status: int, body: Any) -> Reason:
        """Return the reason of an error in OpenAI's format."""
        error = body["error"]
        assert set(error) == {"message", "type", "param", "code"}, body
        assert 0 < len(error["message"]) < 2000, body
        found = [r for r in Reason if (r.openai_code, r.http_status) == (error["code"], status)]
        assert found, (status, body)
        assert status < 500 or status in (501, 503), (status, body)
        return found[0]


def base(kind: str, model: str) -> dict[str, Any]:
    """Return a valid request, of which a case changes a part."""
    asked: dict[str, Any] = {"model": model}
    if kind == "chat":
        asked["messages"] = [{"role": "user", "content": "x"}]
    else:
        asked["prompt"] = "x"
    return asked if kind == "tokenize" else asked | {"max_tokens": 2}


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool, Any] | None:
    """Return the status of a response, whether it is the last one, and its JSON, if any."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        assert not error.partial, error.partial
        return None
    line, *lines = head.decode("latin-1").lower().split("\r\n")
    fields = dict(one.split(": ", 1) for one in lines if one)
    assert "x-request-id" in fields, head
    if "content-length" in fields:
        body = await reader.readexactly(int(fields["content-length"]))
    else:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    is_json = fields.get("content-type", "").startswith("application/json") and body
    closes = fields.get("connection") == "close"
    return int(line.split()[1]), closes, json.loads(body) if is_json else None
