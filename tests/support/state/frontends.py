"""Clients of frontends that share a database."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from baton.client import AsyncClient
from tests.support.services.cluster import LocalCluster

if TYPE_CHECKING:
    import openai


@dataclass(frozen=True)
class Frontends:
    """Two frontends of a cluster."""

    cluster: LocalCluster
    url: str
    """Of the database."""
    http: tuple[httpx.AsyncClient, ...]
    clients: "tuple[openai.AsyncOpenAI, ...]"
    grpc: tuple[AsyncClient, ...] = ()
