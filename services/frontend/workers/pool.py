"""The links to all workers: opened at first use, dropped when they break or their worker goes."""

import asyncio
import itertools
from collections.abc import Callable
from types import TracebackType

import grpc

from baton.internal.v1 import cluster_pb2, router_pb2
from baton.rpc.channels import open_channel
from baton.telemetry.logs import get_logger
from services.frontend.metrics import LINKS, LINKS_BROKEN
from services.frontend.workers.connection import Link

SILENCE_SECONDS = 1.0
"""A worker with work that says nothing for this long is asked whether it lives."""
_WATCH_SECONDS = 0.25

log = get_logger(__name__)


class Links:
    """One link per worker that has been used, by instance id and incarnation."""

    def __init__(self, suspect: Callable[[str], None]) -> None:
        """Tell `suspect` the instance id of every worker whose link broke or fell silent."""
        self._suspect = suspect
        self._numbers = itertools.count(1)
        self._links: dict[tuple[str, str], Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Links":
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        for link in list(self._links.values()):
            link.break_off("the frontend stops", expected=True)
        if self._closing:
            await asyncio.wait(self._closing)

    def get(self, target: router_pb2.Target) -> Link:
        """The link to a worker. Opening does no I/O: work started on it is sent when it can be."""
        key = (target.instance_id, target.incarnation)
        link = self._links.get(key)
        if link is None:
            channel = open_channel(target.address)
            link = Link(target, channel, self._numbers, self._broken)
            self._links[key] = link
            LINKS.set(len(self._links))
            task = asyncio.create_task(_close_after(link, channel))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return link

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Take note of a member: links to it break if it is gone or has started anew."""
        for (instance_id, incarnation), link in list(self._links.items()):
            if instance_id == instance.id and (not alive or incarnation != instance.incarnation):
                link.break_off("the worker is gone", expected=True)

    def _broken(self, link: Link, why: str, expected: bool) -> None:
        self._links.pop((link.target.instance_id, link.target.incarnation), None)
        LINKS.set(len(self._links))
        if expected:
            log.info("link ended", worker=link.target.instance_id, why=why)
            return
        LINKS_BROKEN.inc()
        log.warning("link broke", worker=link.target.instance_id, why=why)
        self._suspect(link.target.instance_id)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for link in self._links.values():
                if link.busy and loop.time() - link.heard_at > SILENCE_SECONDS:
                    link.heard_at = loop.time()
                    self._suspect(link.target.instance_id)


async def _close_after(link: Link, channel: grpc.aio.Channel) -> None:
    """Close a link's channel once the link has ended."""
    await link.gone()
    await channel.close(None)
