"""`spend_limit` and `spend_alerts` of openai-python set budgets and alerts, as it is."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from baton.tenancy.limits.budget.month import month_of
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.auth.test_administration import connect

pytestmark = pytest.mark.xdist_group("openai")

MONTHLY: dict[str, Any] = {"currency": "USD", "interval": "month"}
EMAIL: dict[str, Any] = {"type": "email", "recipients": ["finance@example.com"]}


@pytest.fixture
async def secret(keys: Keys) -> str:
    return (await keys.key(scopes=("admin",)))[1]


@pytest.fixture
async def organization(keys: Keys, secret: str) -> AsyncIterator[Any]:
    async with connect(keys, secret) as client:
        yield client.admin.organization


async def levels(keys: Keys, organization: Any) -> list[tuple[str, Any, Any, dict[str, str]]]:
    """Return of the tenant and a project: a name, limit, alerts, and what all calls need."""
    project = await organization.projects.create(name="search")
    named = {"project_id": project.id}
    return [
        ("organization", organization.spend_limit, organization.spend_alerts, {}),
        ("project", organization.projects.spend_limit, organization.projects.spend_alerts, named),
    ]


async def test_limits_are_set_and_taken_away(keys: Keys, organization: Any) -> None:
    import openai

    for name, limit, _, named in await levels(keys, organization):
        with pytest.raises(openai.NotFoundError):
            await limit.retrieve(**named)
        made = await limit.update(**named, **MONTHLY, threshold_amount=5000)
        assert (made.object, made.threshold_amount) == (f"{name}.spend_limit", 5000)
        assert (made.currency, made.interval) == ("USD", "month")
        assert made.enforcement.status == "inactive"
        assert await limit.retrieve(**named) == made
        deleted = await limit.delete(**named)
        assert (deleted.object, deleted.deleted) == (f"{name}.spend_limit.deleted", True)
        with pytest.raises(openai.NotFoundError):
            await limit.delete(**named)
    await organization.spend_limit.update(**MONTHLY, threshold_amount=1)
    (tenant,) = [one for one in await keys.admin.tenants() if one.id == "acme"]
    assert tenant.budget_nanodollars_per_month == 10**7
    log = (await organization.audit_logs.list(event_types=["spend_limit.updated"])).data
    told = log[0].to_dict()["spend_limit.updated"]
    assert told["after"] == {"budget_nanodollars_per_month": 10**7}
    assert len(log) == 3


async def test_alerts_are_made_changed_listed_and_deleted(keys: Keys, organization: Any) -> None:
    import openai

    for name, _, alerts, named in await levels(keys, organization):
        channel = {**EMAIL, "subject_prefix": "[acme]"}
        made = [
            await alerts.create(
                **named, **MONTHLY, threshold_amount=cents, notification_channel=channel
            )
            for cents in (100, 200, 300)
        ]
        assert made[0].object == f"{name}.spend_alert"
        assert made[0].notification_channel.to_dict() == channel
        listed = [one.id async for one in alerts.list(**named, limit=2)]
        assert listed == [one.id for one in made]
        back = [one.threshold_amount async for one in alerts.list(**named, order="desc", limit=1)]
        assert back == [300, 200, 100]
        first = await alerts.list(**named, before=made[1].id)
        assert [one.id for one in first.data] == [made[0].id]
        changed = await alerts.update(
            made[1].id, **named, **MONTHLY, threshold_amount=250, notification_channel=EMAIL
        )
        assert (changed.id, changed.threshold_amount) == (made[1].id, 250)
        assert await alerts.retrieve(made[1].id, **named) == changed
        gone = await alerts.delete(made[0].id, **named)
        assert (gone.object, gone.id) == (f"{name}.spend_alert.deleted", made[0].id)
        for call in (alerts.retrieve, alerts.delete):
            with pytest.raises(openai.NotFoundError):
                await call(made[0].id, **named)
    log = (await organization.audit_logs.list(event_types=["spend_alert.created"])).data
    assert len(log) == 6


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        ("spend_limit", {"threshold_amount": 0}, "threshold_amount"),
        ("spend_limit", {"threshold_amount": -5}, "threshold_amount"),
        ("spend_limit", {"threshold_amount": 10**11 + 1}, "threshold_amount"),
        ("spend_limit", {"currency": "EUR"}, "currency"),
        ("spend_limit", {"interval": "day"}, "interval"),
        ("spend_alerts", {"notification_channel": {**EMAIL, "recipients": []}}, "recipients"),
        (
            "spend_alerts",
            {"notification_channel": {**EMAIL, "type": "pager"}},
            "notification_channel.type",
        ),
    ],
)
async def test_what_is_wrong_is_named(
    keys: Keys, secret: str, path: str, change: dict[str, Any], field: str
) -> None:
    body: dict[str, Any] = {**MONTHLY, "threshold_amount": 5}
    if path == "spend_alerts":
        body["notification_channel"] = EMAIL
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:
        answer = await client.post(
            f"/v1/organization/{path}", json=body | change, headers=bearer(secret)
        )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_months_are_those_of_utc() -> None:
    assert month_of(0.0) == 197001
    assert month_of(time.time()) == int(time.strftime("%Y%m", time.gmtime()))
