"""Databases of one server, one for each test."""

import itertools
from typing import Any

from pydantic import SecretStr

from baton.postgres.connecting import connected
from baton.postgres.local.server import LocalPostgres
from baton.postgres.schema import upgrade
from baton.settings import StateSettings
from tests.support.clock import PATIENCE_SECONDS

_TEMPLATE = "migrated"


class Databases:
    """Databases of a running server: empty ones, and copies of one with the newest schema."""

    def __init__(self, server: LocalPostgres) -> None:
        self.server = server
        self._numbers = itertools.count()
        self._made = False

    async def empty(self) -> str:
        """Return the URL of a new database without a schema."""
        return await self._create(f"test_{next(self._numbers)}", "template0")

    async def migrated(self) -> str:
        """Return the URL of a new database with the newest schema."""
        if not self._made:
            url = await self._create(_TEMPLATE, "template0")
            await upgrade(_patient(url))
            self._made = True
        return await self._create(f"test_{next(self._numbers)}", _TEMPLATE)

    async def _create(self, name: str, template: str) -> str:
        async with connected(_patient(self.server.url)) as connection:
            await connection.execute(
                f"create database {name} template {template} strategy file_copy",
                timeout=PATIENCE_SECONDS,  # it waits for the disk
            )
        return self.server.url_of(name)


def state_settings(url: str, **fields: Any) -> StateSettings:
    """Return settings of a database, with time for statements on any machine unless given."""
    return StateSettings(url=SecretStr(url), **{"statement_seconds": 60, **fields})


def _patient(url: str) -> StateSettings:
    """Return settings that wait for a server that waits for the disk."""
    return state_settings(url, connect_seconds=PATIENCE_SECONDS)
