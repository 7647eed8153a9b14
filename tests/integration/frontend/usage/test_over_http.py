"""Usage, costs and reports of teams over HTTP: a real Postgres, and who sees what."""

import asyncio
import csv
import io
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import SecretStr

from baton.postgres.connecting import connected
from baton.request.prices import Price, PriceTable
from baton.settings import StateSettings
from baton.tenancy.admin.tenants import Administration
from baton.usage.record import UsageRecord
from baton.usage.report import table
from baton.usage.report.question import Question
from baton.usage.report.totals import PRICE_COLUMNS, Totals, total_of
from services.frontend.admin.routes import TEAM_USAGE
from services.frontend.admin.usage.reader import MAX_AT_ONCE
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import PATIENCE_SECONDS, within
from tests.support.state.databases import Databases
from tests.support.usage.random_records import DAYS, FIRST_DAY, bring, random_record
from tests.support.usage.records import DAY_MS, begun, ended
from tests.support.wait import eventually

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("openai")

PAGE = Path(__file__).parents[4] / "docs/usage.md"
DAY = 86_400
BEGIN, END = FIRST_DAY * DAY, (FIRST_DAY + DAYS) * DAY
DATES = {"start_date": "2024-10-04", "end_date": "2024-10-06"}
PROVIDER = {"m": Price(1000, 500, 2000), "tuned+batch": Price(7, 7, 7)}
USAGE, COSTS = "/v1/organization/usage/completions", "/v1/organization/costs"


@dataclass
class Billing:
    """Two tenants with records in a database, and keys of them."""

    keys: Keys
    url: str
    records: list[UsageRecord]
    project: str
    """Of acme: `default`."""
    search: str
    """Another one of acme."""
    other: str
    """That of the tenant other."""
    admin: str
    member: str
    """A key with the scope `usage`, of the project `default`."""
    theirs: str
    """For administration of the tenant other."""

    def of(self, *projects: str) -> list[UsageRecord]:
        wanted = projects or (self.project, self.search)
        return [one for one in self.records if one.project in wanted and one.tenant == "acme"]

    @asynccontextmanager
    async def client(self, secret: str) -> AsyncIterator[httpx.AsyncClient]:
        url = self.keys.stage.http_url
        async with httpx.AsyncClient(base_url=url, headers=bearer(secret)) as client:
            yield client

    def openai(self, secret: str) -> "openai.AsyncOpenAI":
        import openai  # takes a second

        url = f"{self.keys.stage.http_url}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key="none", admin_api_key=secret, max_retries=0)


@pytest.fixture
async def billing(empty_stage: Any, databases: Databases) -> Billing:
    url = await databases.migrated()
    await empty_stage.set(
        {
            "auth.mode": "keys",
            "state.url": SecretStr(url),
            "usage.provider_prices": PROVIDER,
        }
    )
    keys = Keys(empty_stage, Administration(empty_stage.client, empty_stage.cluster))
    for tenant in ("acme", "other"):
        await keys.tenant(tenant)
    search = await keys.admin.create_project("acme", "search")
    mine, theirs = [await keys.admin.find_project(t, "default") for t in ("acme", "other")]
    draw = random.Random(5)
    # Another tenant's record may name a project of this one: ids are not what keeps them apart.
    tenants = (("acme", (mine.id, search.id)), ("other", (theirs.id, mine.id)))
    records = [random_record(draw, tenants) for _ in range(300)]
    await bring(url, records)
    _, admin = await keys.key(scopes=("admin",))
    _, member = await keys.key(scopes=("usage",))
    _, stranger = await keys.key("other", scopes=("admin",))
    return Billing(keys, url, records, mine.id, search.id, theirs.id, admin, member, stranger)


async def test_usage_in_buckets_by_openai_s_client(billing: Billing) -> None:
    async with billing.openai(billing.admin) as client:
        usage = client.admin.organization.usage
        page = await usage.completions(
            start_time=BEGIN,
            end_time=END,
            group_by=["project_id", "api_key_id", "model", "batch", "service_tier"],
        )
        assert (page.object, page.has_more, page.next_page) == ("page", False, None)
        assert [(one.start_time, one.end_time) for one in page.data] == [
            (BEGIN + n * DAY, BEGIN + (n + 1) * DAY) for n in range(DAYS)
        ]
        told = {
            (
                *(one.start_time // DAY, r.project_id, r.api_key_id, r.model, r.batch),
                r.service_tier,
            ): (r.num_model_requests, r.input_tokens, r.input_cached_tokens, r.output_tokens)
            for one in page.data
            for r in one.results
        }
        expected: dict[Any, Any] = {}
        for one in billing.of():
            at = (one.began_ms // DAY_MS, one.project, one.key, one.adapter or one.model)
            sums = expected.setdefault((*at, one.batch, one.tier), [0, 0, 0, 0])
            sums[0] += 1
            sums[1] += one.prompt_tokens
            sums[2] += one.cached_tokens or 0
            sums[3] += one.output_tokens or 0
        assert told == {key: tuple(sums) for key, sums in expected.items()}
        results = [result for one in page.data for result in one.results]
        assert {result.user_id for result in results} == {None}

        # Pages together are one big answer, and the filters are what they say.
        asked: dict[str, Any] = {
            "start_time": BEGIN + 1800,
            "end_time": BEGIN + 40 * 3600,
            "bucket_width": "1h",
            "models": ["tuned", "m"],
            "batch": False,
            "project_ids": [billing.search],
        }
        whole = await usage.completions(**asked, limit=168)
        token, pages = None, []
        while True:
            part = await usage.completions(**asked, limit=7, **({"page": token} if token else {}))
            pages += part.data
            token = part.next_page
            if not part.has_more:
                break
        assert pages == whole.data
        assert len(pages) == 40
        assert sum(r.num_model_requests for one in pages for r in one.results) == sum(
            (one.adapter or one.model) in ("tuned", "m")
            and not one.batch
            and (BEGIN + 1800) * 1000 <= one.began_ms < (BEGIN + 40 * 3600) * 1000
            for one in billing.of(billing.search)
        )
        # Other kinds of usage: none.
        nothing = await usage.embeddings(start_time=BEGIN, end_time=END, group_by=["model"])
        assert [one.results for one in nothing.data] == [[]] * DAYS
        assert (await usage.vector_stores(start_time=BEGIN, limit=2)).has_more


async def test_costs_are_exact(billing: Billing) -> None:
    async with billing.openai(billing.admin) as client:
        costs = client.admin.organization.usage.costs
        page = await costs(start_time=BEGIN, end_time=END, group_by=["line_item", "project_id"])
        results = [result for one in page.data for result in one.results]
        total = sum(one.cost_nanodollars or 0 for one in billing.of())
        assert sum(result.to_dict()["amount"]["nanodollars"] for result in results) == total
        assert {result.amount.currency for result in results} == {"usd"}
        assert {result.line_item for result in results} == {
            name + batch for name in ("m", "n", "tuned") for batch in ("", ", batch")
        }
        assert sum(result.quantity for result in results) == sum(
            one.prompt_tokens + (one.output_tokens or 0) for one in billing.of()
        )
        items = ["tuned, batch", "m"]
        chosen = await costs(start_time=BEGIN, end_time=END, line_items=items)
        assert sum(
            r.to_dict()["amount"]["nanodollars"] for b in chosen.data for r in b.results
        ) == (
            sum(
                one.cost_nanodollars or 0
                for one in billing.of()
                if ((one.adapter, one.batch) == ("tuned", True))
                or ((one.adapter, one.model, one.batch) == ("", "m", False))
            )
        )
    async with billing.client(billing.admin) as http:
        answer = await http.get(COSTS, params={"start_time": BEGIN, "end_time": END, "limit": 180})
    told = json.loads(answer.content, parse_float=Decimal)
    values = [result["amount"]["value"] for one in told["data"] for result in one["results"]]
    assert sum(values) * 10**9 == total  # as it is written, to the nano-dollar


async def test_a_team_s_days_beside_a_provider_s_prices(billing: Billing) -> None:
    provider = PriceTable(PROVIDER)

    def totals(*projects: str) -> Totals:
        question = Question(by=PRICE_COLUMNS)
        return total_of(question.answer(billing.of(*projects)), provider)

    async with billing.client(billing.admin) as http:
        report = (await http.get(TEAM_USAGE, params=DATES)).raise_for_status().json()
        assert report["object"] == "usage.report"
        expected = totals()
        for name in ("requests", "prompt_tokens", "cost_nanodollars", "provider_nanodollars"):
            assert report["total"][name] == getattr(expected, name), name
            assert sum(row[name] for row in report["data"]) == getattr(expected, name)
            assert sum(m[name] for row in report["data"] for m in row["models"]) == getattr(
                expected, name
            )
        assert report["total"]["saved_nanodollars"] == expected.saved_nanodollars
        assert Decimal(report["total"]["cost_usd"]) * 10**9 == expected.cost_nanodollars
        assert [(row["date"], row["team_name"]) for row in report["data"]] == [
            (f"2024-10-0{day}", name) for day in (4, 5, 6) for name in ("default", "search")
        ]
        newest = max(one.began_ms for one in billing.of())
        assert report["latest_record_at"] == newest // 1000
        assert report["as_of"] > report["latest_record_at"]

        for name in ("search", billing.search):
            one = (await http.get(TEAM_USAGE, params={**DATES, "team_id": name})).json()
            assert {row["team_id"] for row in one["data"]} == {billing.search}
            assert one["total"]["requests"] == len(billing.of(billing.search))
        day = (
            await http.get(TEAM_USAGE, params={"date": "2024-10-05", "team_id": "search"})
        ).json()
        assert [row["date"] for row in day["data"]] == ["2024-10-05"]
        today = (await http.get(TEAM_USAGE)).json()
        assert (today["data"], today["total"]["requests"]) == ([], 0)

        table = await http.get(TEAM_USAGE, params=DATES, headers={"accept": "text/csv"})
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert sum(int(row["cost_nanodollars"]) for row in rows) == expected.cost_nanodollars
        assert (await http.get(TEAM_USAGE, params={**DATES, "format": "csv"})).text == table.text
        days = [day for day, _ in groupby(row["date"] for row in rows)]
        assert days == ["2024-10-04", "2024-10-05", "2024-10-06"]


async def test_what_the_page_shows_runs(
    billing: Billing, capsys: pytest.CaptureFixture[str]
) -> None:
    now = ended(
        begun(
            began_ms=int(time() * 1000) - 5000,
            tenant="acme",
            project=billing.project,
            model="of-today",
        ),
        cost_nanodollars=1_234_000_000,
    )
    await bring(billing.url, [now])
    blocks = re.findall(r"^```python norun\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    (shown,) = [block for block in blocks if "usage.completions" in block]
    shown = shown.replace("http://localhost:8000", billing.keys.stage.http_url)
    shown = shown.replace("sk-baton-…", billing.admin)
    await asyncio.to_thread(exec, compile(shown, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "of-today 1 10" in printed
    assert "of-today 1.234" in printed


async def test_a_key_sees_its_own_alone(billing: Billing) -> None:
    _, inference = await billing.keys.key(scopes=("inference",))
    asked = {"start_time": str(BEGIN), "end_time": str(END)}

    async def requests(secret: str, **params: Any) -> int:
        async with billing.client(secret) as http:
            page = (await http.get(USAGE, params={**asked, **params})).raise_for_status().json()
            costs = (await http.get(COSTS, params={**asked, **params})).raise_for_status().json()
            seen = [r["num_model_requests"] for one in page["data"] for r in one["results"]]
            assert sum(bool(one["results"]) for one in costs["data"]) == len(seen)
        return sum(seen)

    theirs = [one for one in billing.records if one.tenant == "other"]
    assert await requests(billing.admin) == len(billing.of())
    assert await requests(billing.theirs) == len(theirs)
    assert await requests(billing.member) == len(billing.of(billing.project))
    # What is another's is not there, whoever names it.
    assert await requests(billing.admin, project_ids=billing.other) == 0
    assert await requests(billing.theirs, project_ids=billing.search) == 0
    assert await requests(billing.member, project_ids=billing.search) == 0
    assert await requests(billing.member, project_ids=[billing.search, billing.project]) == len(
        billing.of(billing.project)
    )
    their_key = next(one.key for one in theirs if one.project == billing.other)
    mine = sum(one.key == their_key for one in billing.of())
    assert await requests(billing.admin, api_key_ids=their_key) == mine

    async def team(secret: str, **params: Any) -> tuple[int, Any]:
        async with billing.client(secret) as http:
            answer = await http.get(TEAM_USAGE, params={**DATES, **params})
        told = answer.json()
        return answer.status_code, told.get("total", told.get("error"))

    status, total = await team(billing.member)
    assert (status, total["requests"]) == (200, len(billing.of(billing.project)))
    status, total = await team(billing.theirs)
    assert (status, total["requests"]) == (200, len(theirs))
    for secret, name in (
        (billing.admin, billing.other),
        (billing.admin, "proj_0000000000000000"),
        (billing.theirs, billing.search),
        (billing.theirs, "search"),
        (billing.member, billing.search),
        (billing.member, "search"),
    ):
        status, told = await team(secret, team_id=name)
        assert (status, told["message"]) == (404, f"team '{name}' does not exist")
    async with billing.client(inference) as http:
        for path in (USAGE, COSTS, TEAM_USAGE, "/v1/organization/usage/images"):
            answer = await http.get(path, params=asked)
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                403,
                "permission_denied",
            )
            assert "'usage' or 'admin'" in answer.json()["error"]["message"]


async def test_what_cannot_be_answered_says_why(
    billing: Billing, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"start_time": str(BEGIN), "end_time": str(END)}
    reader = "services.frontend.admin.usage.reader"
    settings = StateSettings(url=SecretStr(billing.url))
    grace = table._GRACE_SECONDS
    async with billing.client(billing.admin) as http:

        async def told(path: str, params: dict[str, str]) -> tuple[int, str, str | None]:
            answer = await http.get(path, params=params)
            error = answer.json()["error"]
            return answer.status_code, error["code"], error["param"]

        unknown = await told("/v1/organization/usage/colours", asked)
        assert unknown == (404, "not_found", None)
        assert await told(USAGE, {}) == (400, "invalid_value", "start_time")
        assert await told(USAGE, {**asked, "group_by": "user_id"}) == (
            *(400, "unsupported_parameter"),
            "group_by",
        )
        assert await told(COSTS, {**asked, "bucket_width": "1h"}) == (
            *(400, "invalid_value"),
            "bucket_width",
        )
        assert await told(COSTS, {**asked, "limit": "181"}) == (400, "invalid_value", "limit")
        assert await told(TEAM_USAGE, {"date": "today"}) == (400, "invalid_value", "date")
        assert await told(TEAM_USAGE, {"format": "xml"}) == (400, "invalid_value", "format")
        for module in (reader, "services.frontend.admin.usage.teams"):
            monkeypatch.setattr(f"{module}.MAX_GROUPS", 3)
        assert await told(TEAM_USAGE, DATES) == (400, "invalid_value", "end_date")
        monkeypatch.setattr(f"{reader}.QUERY_SECONDS", 0.1)
        # Postgres answers at once that it gave up; this process may be late to hear of it.
        monkeypatch.setattr(table, "_GRACE_SECONDS", PATIENCE_SECONDS)
        async with connected(settings) as blocker, blocker.transaction():
            await blocker.execute("lock table usage_records in access exclusive mode")
            for path in (USAGE, COSTS, TEAM_USAGE):
                assert await told(path, asked if path != TEAM_USAGE else DATES) == (
                    *(504, "deadline_exceeded"),
                    None,
                )
            monkeypatch.setattr(f"{reader}.QUERY_SECONDS", PATIENCE_SECONDS)
            many = [asyncio.create_task(http.get(USAGE, params=asked)) for _ in range(40)]
            await eventually(lambda: sum(one.done() for one in many) == 40 - MAX_AT_ONCE)
            refused = [one.result() for one in many if one.done()]
            assert {one.status_code for one in refused} == {503}
            assert {one.json()["error"]["code"] for one in refused} == {"overloaded"}
        answered = await asyncio.gather(*many)
        assert sum(one.status_code == 200 for one in answered) == MAX_AT_ONCE
        monkeypatch.setattr(f"{reader}.QUERY_SECONDS", 4.0)
        monkeypatch.setattr(table, "_GRACE_SECONDS", grace)
        name = billing.url.partition("?")[0].rpartition("/")[2]
        away = StateSettings(url=SecretStr(databases.server.url))
        async with connected(away) as operator:  # for all but this one
            await operator.execute(f"alter database {name} with allow_connections false")
            await operator.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name
            )
        for path in (USAGE, COSTS, TEAM_USAGE):
            async with within(5):
                answer = await http.get(path, params=asked if path != TEAM_USAGE else DATES)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "state.url" in answer.json()["error"]["message"]
        assert (await http.get("/v1/organization/projects")).status_code == 200


async def test_without_a_database_usage_names_the_setting(empty_stage: Any) -> None:
    await empty_stage.set({"auth.mode": "keys"})
    keys = Keys(empty_stage, Administration(empty_stage.client, empty_stage.cluster))
    await keys.tenant("acme")
    _, secret = await keys.key(scopes=("admin",))
    async with httpx.AsyncClient(base_url=empty_stage.http_url, headers=bearer(secret)) as http:
        for path in (USAGE, COSTS, TEAM_USAGE):
            params = {} if path == TEAM_USAGE else {"start_time": "0"}
            answer = await http.get(path, params=params)
            assert (answer.status_code, answer.json()["error"]["code"]) == (501, "unsupported")
            assert "state.url (BATON_STATE_URL)" in answer.json()["error"]["message"]
        # What there is none of needs no database.
        images = await http.get("/v1/organization/usage/images", params={"start_time": 0})
        assert images.status_code == 200
