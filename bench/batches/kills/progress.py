"""How far batches are, from the rows of their lines."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from baton.postgres.connecting import StateError
from baton.postgres.database import Database

_POLL_SECONDS = 0.1
_ENDED = "select coalesce(sum(completed + failed), 0)::int as ended from batches"
_RUNNING = """
select owner, count(*)::int as lines from batch_lines
where state = 0 and owner <> '' and lease_until > now() group by owner
"""


@dataclass
class Progress:
    """The lines of all batches as they were when the database last answered; `follow` looks."""

    ended: int = 0
    running: Mapping[str, int] = field(default_factory=dict)
    """Lines under leases, by frontend."""

    async def follow(self, database: Database) -> None:
        """Look until cancelled."""
        while True:
            try:
                self.ended = (await database.fetch(_ENDED))[0]["ended"]
                rows = await database.fetch(_RUNNING)
                self.running = {row["owner"]: row["lines"] for row in rows}
            except StateError:
                self.running = {}  # it is not known what runs
            await asyncio.sleep(_POLL_SECONDS)
