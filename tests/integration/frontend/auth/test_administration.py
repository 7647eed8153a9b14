"""`client.admin.organization` of openai-python administers a tenant, as it is."""

import asyncio
import re
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from baton.tenancy.directory import directory as sentences
from baton.tenancy.directory.uses import LastUses
from baton.tenancy.directory.watch import DirectoryWatch
from baton.tenancy.records.audit import AuditLog
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import within
from tests.support.wait import eventually

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("openai")

PAGE = Path(__file__).parents[4] / "docs/teams.md"


def connect(keys: Keys, secret: str) -> "openai.AsyncOpenAI":
    import openai  # takes a second

    url = f"{keys.stage.http_url}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key="none", admin_api_key=secret, max_retries=0)


@pytest.fixture
async def organization(keys: Keys) -> Any:
    _, secret = await keys.key(scopes=("admin",), name="first")
    async with connect(keys, secret) as client:
        yield client.admin.organization


async def sentence(keys: Keys, secret: str) -> str:
    """Why a key is refused; empty: it is not."""
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:
        answer = await client.get("/v1/models", headers=bearer(secret))
    return "" if answer.status_code == 200 else str(answer.json()["error"]["message"])


async def test_projects(keys: Keys, organization: Any) -> None:
    await keys.tenant("other")
    default = await keys.admin.find_project("acme", "default")
    made = [await organization.projects.create(name=f"team-{n}") for n in range(5)]
    assert {(one.object, one.status, one.archived_at) for one in made} == {
        ("organization.project", "active", None)
    }
    assert abs(made[0].created_at - time()) < 120
    assert await organization.projects.retrieve(made[0].id) == made[0]
    renamed = await organization.projects.update(made[1].id, name="search")
    assert (renamed.id, renamed.name) == (made[1].id, "search")
    archived = await organization.projects.archive(made[2].id)
    assert archived.status == "archived"
    assert archived.archived_at >= made[2].created_at
    assert await organization.projects.archive(made[2].id) == archived
    assert (await organization.projects.retrieve(made[2].id)).status == "archived"
    names = ["default", "team-0", "search", "team-3", "team-4"]
    # The client asks for page after page.
    for limit in (1, 2, 5, 100):
        assert [one.name async for one in organization.projects.list(limit=limit)] == names
    page = await organization.projects.list(limit=2)
    assert (page.has_more, page.last_id, len(page.data)) == (True, made[0].id, 2)
    rest = await organization.projects.list(after=page.last_id, include_archived=True)
    assert rest.has_more is False
    assert [one.id for one in rest.data] == [one.id for one in made[1:]]
    assert default.id == page.data[0].id
    # The name of an archived project is free again.
    assert (await organization.projects.create(name="team-2")).id != made[2].id


async def test_service_accounts_and_their_keys(keys: Keys, organization: Any) -> None:
    project = await organization.projects.create(name="search")
    accounts = organization.projects.service_accounts
    made = await accounts.create(project.id, name="Ranking, nightly", expires_in_seconds=3600)
    assert (made.object, made.role, made.name) == (
        *("organization.project.service_account", "member"),
        "Ranking, nightly",
    )
    assert made.api_key.object == "organization.project.service_account.api_key"
    assert made.api_key.expires_at - made.api_key.created_at == 3600
    secret = made.api_key.value
    assert not await sentence(keys, secret)  # this frontend knows it as soon as it says it
    second = await accounts.api_keys.create(
        made.id, project_id=project.id, name="two", scopes=["inference", "usage"]
    )
    assert not await sentence(keys, second.value)
    bare = await accounts.create(project.id, name="b", create_service_account_only=True)
    assert (bare.api_key, bare.role) == (None, "none")
    found = await accounts.retrieve(made.id, project_id=project.id)
    assert (found.id, found.name, found.created_at) == (made.id, made.name, made.created_at)
    assert [one.id async for one in accounts.list(project.id, limit=1)] == [made.id, bare.id]

    api_keys = organization.projects.api_keys
    ids = [made.api_key.id, second.id]
    assert [one.id async for one in api_keys.list(project.id, limit=1)] == ids
    shown = await api_keys.retrieve(second.id, project_id=project.id)
    assert (shown.name, shown.object) == ("two", "organization.project.api_key")
    assert (shown.owner.type, shown.owner.service_account.id) == ("service_account", made.id)
    assert shown.redacted_value == "sk-baton-…"
    assert second.value not in shown.to_json()
    gone = await api_keys.delete(second.id, project_id=project.id)
    assert (gone.id, gone.deleted) == (second.id, True)
    assert await sentence(keys, second.value) == sentences.REVOKED
    assert [one.id async for one in api_keys.list(project.id)] == ids[:1]

    deleted = await accounts.delete(made.id, project_id=project.id)
    assert (deleted.id, deleted.deleted) == (made.id, True)
    assert await sentence(keys, secret) == sentences.DELETED
    assert [one.id async for one in accounts.list(project.id)] == [bare.id]
    assert [one.id async for one in api_keys.list(project.id)] == []


async def test_keys_that_the_command_line_made_are_listed(keys: Keys, organization: Any) -> None:
    ident, secret = await keys.key(name="by hand")
    project = (await organization.projects.list()).data[0]
    (shown,) = (await organization.projects.api_keys.list(project.id)).data
    assert (shown.id, shown.name, shown.owner.type) == (ident, "by hand", "user")
    assert shown.owner.user.id == "operator"
    assert (await organization.projects.api_keys.list(project.id, owner_project_access="any")).data
    none = await organization.projects.api_keys.list(project.id, owner_project_access="inactive")
    assert none.data == []
    await organization.projects.api_keys.delete(ident, project_id=project.id)
    assert await sentence(keys, secret) == sentences.REVOKED


async def test_keys_for_administration(keys: Keys, organization: Any) -> None:
    import openai

    (first,) = (await organization.admin_api_keys.list()).data
    assert (first.name, first.object) == ("first", "organization.admin_api_key")
    second = await organization.admin_api_keys.create(name="second", expires_in_seconds=60)
    assert second.value.startswith("sk-baton-")
    assert second.expires_at == second.created_at + 60
    ids = [first.id, second.id]
    assert [one.id async for one in organization.admin_api_keys.list(limit=1)] == ids
    listed = organization.admin_api_keys.list(limit=1, order="desc")
    assert [one.id async for one in listed] == ids[::-1]
    shown = await organization.admin_api_keys.retrieve(second.id)
    assert shown.redacted_value == "sk-baton-…"
    assert second.value not in shown.to_json()
    project = (await organization.projects.list()).data[0]
    assert (await organization.projects.api_keys.list(project.id)).data == []
    async with connect(keys, second.value) as client:
        other = client.admin.organization
        with pytest.raises(openai.BadRequestError, match="cannot delete itself"):
            await other.admin_api_keys.delete(second.id)
        with pytest.raises(openai.BadRequestError, match="archiving would revoke it"):
            await other.projects.archive(project.id)
        assert (await other.admin_api_keys.delete(first.id)).deleted
        assert [one.id async for one in other.admin_api_keys.list()] == [second.id]
    with pytest.raises(openai.AuthenticationError, match="was revoked"):
        await organization.admin_api_keys.list()


async def test_when_a_key_was_used_last_is_told(keys: Keys, organization: Any) -> None:
    project = await organization.projects.create(name="search")
    account = await organization.projects.service_accounts.create(project.id, name="ranking")
    api_keys = organization.projects.api_keys
    assert (await api_keys.list(project.id)).data[0].last_used_at is None
    uses = LastUses(keys.stage.client, keys.stage.cluster)  # as the frontend does each minute
    uses.note(account.api_key.id, time())
    await uses.write()
    shown = await api_keys.retrieve(account.api_key.id, project_id=project.id)
    assert shown.last_used_at % 60 == 0
    assert 0 <= time() - shown.last_used_at < 180


async def test_what_was_changed_is_told(keys: Keys, organization: Any) -> None:
    project = await organization.projects.create(name="search")
    account = await organization.projects.service_accounts.create(project.id, name="ranking")
    await organization.projects.update(project.id, name="find")
    await organization.projects.archive(project.id)
    expected = ["project.archived", "project.updated", "api_key.created", "service_account.created"]
    logs = [one async for one in organization.audit_logs.list(limit=1)]
    assert [one.type for one in logs[:4]] == expected
    archived, updated, key_made = logs[:3]
    (first,) = (await organization.admin_api_keys.list()).data
    assert (updated.actor.type, updated.actor.api_key.id) == ("api_key", first.id)
    assert (updated.project.id, updated.project.name) == (project.id, "find")
    assert updated.project_updated.changes_requested.title == "find"
    assert archived.project_archived.id == project.id
    assert key_made.api_key_created.id == account.api_key.id
    assert key_made.api_key_created.data.scopes == ["inference"]
    assert abs(updated.effective_at - time()) < 120
    assert logs[-1].type == "organization.created"
    assert logs[-1].actor.session.user.id == "operator"

    async def listed(**asked: Any) -> list[str]:
        return [one.type async for one in organization.audit_logs.list(**asked)]

    assert await listed(event_types=["project.archived", "project.updated"]) == expected[:2]
    assert await listed(project_ids=[project.id]) == [*expected, "project.created"]
    assert await listed(resource_ids=[account.id]) == ["service_account.created"]
    assert await listed(actor_ids=[first.id]) == [*expected, "project.created"]
    assert await listed(actor_ids=["key_0"]) == []
    now = updated.effective_at
    assert await listed(effective_at={"gt": now + 60}) == []
    assert await listed(effective_at={"gte": now - 60, "lte": now + 60}) == [
        one.type for one in logs
    ]


async def test_a_change_is_in_force_at_another_frontend_within_a_second(
    keys: Keys, organization: Any
) -> None:
    other = await keys.stage.services("frontend", {"auth.mode": "keys"}, "other")
    project = await organization.projects.create(name="search")
    account = await organization.projects.service_accounts.create(project.id, name="ranking")
    secret = account.api_key.value
    async with httpx.AsyncClient(base_url=f"http://{other.instance.http_address}") as client:

        async def status() -> int:
            return (await client.get("/v1/models", headers=bearer(secret))).status_code

        async def refused() -> bool:
            return await status() == 401

        async def taken() -> bool:
            return await status() == 200

        async with within(1):
            await eventually(taken)
        await organization.projects.service_accounts.delete(account.id, project_id=project.id)
        async with within(1):
            await eventually(refused)


async def test_what_two_frontends_change_at_once_is_all_made(keys: Keys, organization: Any) -> None:
    import openai

    other = await keys.stage.services("frontend", {"auth.mode": "keys"}, "other")
    _, secret = await keys.key(scopes=("admin",))
    url = f"http://{other.instance.http_address}/v1"
    async with openai.AsyncOpenAI(
        base_url=url, api_key="none", admin_api_key=secret, max_retries=0
    ) as client:
        sides = (organization, client.admin.organization)
        made = await asyncio.gather(
            *(side.projects.create(name=f"p-{n}") for n in range(6) for side in sides),
            return_exceptions=True,
        )
        conflicts = [one for one in made if isinstance(one, openai.ConflictError)]
        assert len(conflicts) == 6
        # Each frontend tells of what the other one has made.
        for side in sides:
            names = sorted([one.name async for one in side.projects.list()])
            assert names == ["default", *(f"p-{n}" for n in range(6))]
    stored = await AuditLog(keys.stage.client, keys.stage.cluster).page("acme")
    assert sum(one.event == "project.created" for one in stored) == 7


async def test_what_the_page_shows_runs(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    _, secret = await keys.key(scopes=("admin",))
    blocks = re.findall(r"^```python norun\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    shown = "".join(
        block for block in blocks if re.search(r"\badmin\.(projects|audit_logs|spend_limit)", block)
    )
    shown = shown.replace("http://localhost:8000", keys.stage.http_url)
    shown = shown.replace("sk-baton-…", secret)
    await asyncio.to_thread(exec, compile(shown, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "Ranking, nightly" in printed
    assert "api_key.created" in printed
    assert len(await keys.admin.projects("acme")) == 2


async def test_limits_of_a_project(keys: Keys, organization: Any) -> None:
    project = await organization.projects.create(name="search")
    limits = organization.projects.rate_limits
    (none,) = [one async for one in limits.list_rate_limits(project.id)]
    assert (none.object, none.model) == ("project.rate_limit", "*")
    amounts = (none.max_requests_per_1_minute, none.max_tokens_per_1_minute)
    assert amounts == (10**12, 10**12)  # there is none
    changed = await limits.update_rate_limit(
        none.id, project_id=project.id, max_requests_per_1_minute=600
    )
    assert changed.max_requests_per_1_minute == 600
    await limits.update_rate_limit(none.id, project_id=project.id, max_tokens_per_1_minute=90_000)
    (both,) = (await limits.list_rate_limits(project.id)).data
    assert (both.max_requests_per_1_minute, both.max_tokens_per_1_minute) == (600, 90_000)
    record = await keys.admin.find_project("acme", "search")
    assert (record.requests_per_minute, record.tokens_per_minute) == (600, 90_000)
    await limits.update_rate_limit(none.id, project_id=project.id, max_requests_per_1_minute=10**12)
    record = await keys.admin.find_project("acme", "search")
    assert (record.requests_per_minute, record.tokens_per_minute) == (0, 90_000)
    log = (await organization.audit_logs.list(event_types=["rate_limit.updated"])).data
    assert log[1].rate_limit_updated.changes_requested.max_tokens_per_1_minute == 90_000
    assert log[0].to_dict()["rate_limit.updated"]["before"] == {"requests_per_minute": 600}


async def test_keys_and_accounts_are_changed(keys: Keys, organization: Any) -> None:
    project = await organization.projects.create(name="search")
    accounts = organization.projects.service_accounts
    made = await accounts.create(project.id, name="ranking")
    renamed = await accounts.update(made.id, project_id=project.id, name="Ranker", role="member")
    assert (renamed.id, renamed.name) == (made.id, "Ranker")
    api_keys, secret = organization.projects.api_keys, made.api_key.value
    changed = await api_keys.update(
        made.api_key.id, project_id=project.id, scopes=["usage"], expires_in_seconds=60
    )
    assert abs(changed.expires_at - time() - 60) < 120
    assert changed.owner.service_account.name == "Ranker"
    assert "scope 'inference'" in await sentence(keys, secret)
    await api_keys.update(made.api_key.id, project_id=project.id, scopes=[])
    assert not await sentence(keys, secret)
    same = await api_keys.update(made.api_key.id, project_id=project.id)
    assert same.expires_at == changed.expires_at
    (told, *_) = (await organization.audit_logs.list(event_types=["api_key.updated"])).data
    assert told.api_key_updated.changes_requested.scopes == [
        *("inference", "usage", "state.read", "state.write")
    ]


async def test_an_answer_waits_until_its_frontend_knows_the_change(
    keys: Keys, organization: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = DirectoryWatch.change

    def late(watch: DirectoryWatch, *told: Any) -> None:
        asyncio.get_running_loop().call_later(0.3, change, watch, *told)

    project = await organization.projects.create(name="search")
    monkeypatch.setattr(DirectoryWatch, "change", late)
    account = await organization.projects.service_accounts.create(project.id, name="ranking")
    assert not await sentence(keys, account.api_key.value)
    other = await keys.admin.create_project("acme", "other")  # as another frontend makes it
    assert other.id in [one.id async for one in organization.projects.list()]
