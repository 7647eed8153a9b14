"""An upstream that streams tokens at an exact pace: `python -m bench.providers.paced_upstream`.

The model's name is its pace: `every-300us`, or `never`. Prints its port, and serves until its input
ends. One thread sends for all streams: timers of event loops have a resolution of 1 ms.
"""

import heapq
import json
import re
import socket
import sys
import threading
import time
from contextlib import suppress

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
BACKLOG = 4096


def event(choices: str, usage: str = "null") -> bytes:
    """Return an event as a chunk of the response."""
    data = (
        'data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1764000000,'
        f'"model":"m","system_fingerprint":"fp","choices":{choices},"usage":{usage}}}\n\n'
    )
    return b"%x\r\n%b\r\n" % (len(data), data.encode())


TOKENS = [
    event(f'[{{"index":0,"delta":{{"content":" {word}"}},"logprobs":null,"finish_reason":null}}]')
    for word in ("light", "house", "stone", "water", "night", "storm", "ships", "coast")
]
"""Different ones: LiteLLM ends a stream that repeats itself."""
END = event('[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]')


class Sender:
    """Sends the tokens of all streams when they are due."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, float, int, socket.socket]] = []
        self._number = 0
        self._changed = threading.Condition()

    def add(self, pace: float, tokens: int, sock: socket.socket) -> None:
        """Begin a stream; the first token is sent at once."""
        with self._changed:
            self._number += 1
            heapq.heappush(self._due, (time.monotonic(), self._number, pace, tokens, sock))
            self._changed.notify()

    def run(self) -> None:
        """Send for ever."""
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                at, number, pace, left, sock = self._due[0]
                if (wait := at - time.monotonic()) <= 0:
                    heapq.heappop(self._due)
            if wait > 0:
                time.sleep(min(wait, 0.001))
                continue
            if not left:
                counted = f'{{"prompt_tokens":9,"completion_tokens":{number}}}'
                ends = END + event("[]", counted) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
                with suppress(OSError):
                    sock.sendall(ends)
                continue
            with suppress(OSError):
                sock.sendall(TOKENS[left % len(TOKENS)])
                with self._changed:
                    heapq.heappush(self._due, (at + pace, number, pace, left - 1, sock))


def serve(sock: socket.socket, sender: Sender) -> None:
    """Read the requests of a connection."""
    with sock, suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                if not (piece := sock.recv(65536)):
                    return
                rest += piece
            head, _, rest = rest.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            while len(rest) < length:
                rest += sock.recv(65536)
            body, rest = json.loads(rest[:length] or b"{}"), rest[length:]
            if "model" not in body:
                sock.sendall(_NOT_FOUND)
                continue
            if body["model"] == "never":
                continue
            sock.sendall(_HEAD)
            tokens = body.get("max_completion_tokens") or body["max_tokens"]
            pace = int(body["model"].removeprefix("every-").removesuffix("us")) / 1e6
            sender.add(pace, tokens, sock)


def main() -> None:
    """Serve until the input ends."""
    sender = Sender()
    threading.Thread(target=sender.run, daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve, args=(sock, sender), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
