"""Metrics: each family lives with its owner, all in one registry that /metrics shows.

Names begin with `baton_`, units stand in them (`_seconds`, `_bytes`, `_total`), and no label takes
values that users choose freely.
"""

from collections.abc import Sequence
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
)

__all__ = ["Counter", "Exposition", "Gauge", "Histogram", "latency_buckets", "render", "serve"]


def latency_buckets() -> Sequence[float]:
    """Buckets in seconds for latencies between processes, 0.5 ms to 10 s."""
    return (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def render() -> tuple[bytes, str]:
    """All metrics in Prometheus' text format, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


class Exposition:
    """A /metrics server on threads of its own, up until `close`."""

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(host: str, port: int) -> Exposition:
    """Answer /metrics over HTTP; `.port` says where, also for port 0.

    Raises:
        OSError: the port is taken or the address is not one of this machine's.
    """
    server, thread = start_http_server(port, addr=host, registry=REGISTRY)
    return Exposition(server, thread)
