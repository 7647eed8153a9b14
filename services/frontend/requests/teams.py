"""Metrics per tenant and project: the busiest teams have series of their own."""

from collections.abc import Callable

from baton.request.stream_events import Usage
from services.frontend.metrics import TEAM_REQUESTS, TEAM_TOKENS

Team = tuple[str, str]
"""Ids of a tenant and a project."""
OTHER: Team = ("other", "other")
_TRACKED = 20
"""Teams whose use is followed, as a multiple of those with series."""
_HALVED_AFTER = 10_000
"""Requests after which earlier ones count half."""
_FACTOR = 2.0
"""A team takes the place of another one once it uses this many times as much."""


class BusiestTeams:
    """Chooses the teams that have a name of their own. Bounded; pure.

    Args:
        top: how many.
        on_removed: called with a team that another one has replaced.
    """

    def __init__(self, top: int, on_removed: Callable[[Team], None]) -> None:
        self._top = top
        self._on_removed = on_removed
        self._used: dict[Team, float] = {}
        self._named: set[Team] = set()
        self._requests = 0

    def name_of(self, team: Team, tokens: int) -> Team:
        """Return a team's name after a request, or OTHER.

        Args:
            team: the team.
            tokens: that the request used.
        """
        used, named = self._used, self._named
        used[team] = used.get(team, 0.0) + tokens
        if len(used) > _TRACKED * self._top:
            self._forget_some(team)
        self._requests += 1
        if self._requests % _HALVED_AFTER == 0:
            self._used = used = {one: value / 2 for one, value in used.items()}
        if team in named:
            return team
        if len(named) < self._top:
            named.add(team)
            return team
        least = min(named, key=used.__getitem__)
        if used[team] > _FACTOR * used[least]:
            named.remove(least)
            self._on_removed(least)
            named.add(team)
            return team
        return OTHER

    def _forget_some(self, team: Team) -> None:
        """Forget half of the teams without a name, those that used least, but not this one."""
        used, named = self._used, self._named
        others = sorted(
            (one for one in used if one not in named and one != team), key=used.__getitem__
        )
        for one in others[: len(others) // 2]:
            del used[one]


class TeamMetrics:
    """Counts requests and tokens per team. One per frontend, on the event loop.

    Args:
        top: teams with series of their own; the others are counted as `other`.
    """

    def __init__(self, top: int) -> None:
        self._teams = BusiestTeams(top, self._removed)
        self._reasons: dict[Team, set[str]] = {}
        """Reasons that teams have series with."""

    def count(self, team: Team, reason: str, usage: Usage) -> None:
        """Count a request that ran.

        Args:
            team: whose it was.
            reason: `ok`, or the reason of the error that ended it.
            usage: what it used.
        """
        tokens = usage.prompt_tokens + usage.output_tokens
        name = self._teams.name_of(team, tokens)
        self._reasons.setdefault(name, set()).add(reason)
        TEAM_REQUESTS.labels(*name, reason).inc()
        TEAM_TOKENS.labels(*name, "prompt").inc(usage.prompt_tokens)
        TEAM_TOKENS.labels(*name, "cached").inc(usage.cached_tokens)
        TEAM_TOKENS.labels(*name, "output").inc(usage.output_tokens)

    def _removed(self, team: Team) -> None:
        for reason in self._reasons.pop(team, ()):
            TEAM_REQUESTS.remove(*team, reason)
        for kind in ("prompt", "cached", "output"):
            TEAM_TOKENS.remove(*team, kind)
