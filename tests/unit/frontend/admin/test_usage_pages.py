"""What parameters of usage ask for, what is wrong with them, and what becomes of groups."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from baton.errors import BatonError, Reason
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Scope
from baton.usage.report.question import Labels, Sums, UsageGroup
from services.frontend.admin.usage import completions, page
from services.frontend.admin.usage.asked import COST_WIDTHS, WIDTHS, Asked, read
from services.frontend.admin.usage.completions import _GROUPS as GROUPS
from services.frontend.admin.usage.teams import read_days
from services.frontend.http.query import QueryString
from tests.support.pairwise import pairwise
from tests.support.tenancy import PROJECT, key, project, tenant

NOW = 1_700_000_000.5
DAY = 86_400
FIELDS = (
    *("start_time", "end_time", "bucket_width", "group_by", "limit", "page", "batch"),
    *("project_ids", "api_key_ids", "models", "user_ids", "line_items"),
)


def who(*scopes: Scope) -> Principal:
    return Principal(tenant(), project(), key(scopes=scopes)[0])


ADMIN, MEMBER = who(Scope.ADMIN), who(Scope.USAGE)


def asked(by: Principal = ADMIN, widths: Any = WIDTHS, **fields: Any) -> Asked:
    raw = urlencode({"start_time": 0, **fields}, doseq=True).encode()
    return read(QueryString(raw, FIELDS), by, NOW, widths, GROUPS)


def test_defaults_are_openai_s() -> None:
    one = asked(start_time=1_699_999_000)
    assert (one.range.begin, one.range.end, one.range.width) == (1_699_999_000, 1_700_000_001, DAY)
    assert (one.limit, one.group_by, one.question.by) == (7, (), ())
    assert one.question.tenant == "acme"
    limits = [asked(bucket_width=width).limit for width in ("1d", "1h", "1m")]
    assert limits == [7, 24, 60]
    assert asked(widths=COST_WIDTHS, limit=180).limit == 180


@pytest.mark.parametrize(
    ("width", "limit", "group_by", "batch", "projects", "by"),
    pairwise(
        ("1d", "1h", "1m"),
        (1, 31),
        ((), ("project_id",), ("model", "batch", "service_tier"), ("api_key_id", "api_key_id")),
        (None, "true", "false"),
        ((), (PROJECT,), ("proj_0", PROJECT)),
        (ADMIN, MEMBER),
    ),
)
def test_what_is_asked_is_the_tenant_s_and_what_the_key_sees(
    width: str,
    limit: int,
    group_by: tuple[str, ...],
    batch: str | None,
    projects: tuple[str, ...],
    by: Principal,
) -> None:
    fields: dict[str, Any] = {} if batch is None else {"batch": batch}
    one = asked(
        by,
        bucket_width=width,
        limit=limit,
        **{"group_by[]": group_by, "project_ids[]": projects},
        **fields,
    )
    question = one.page_question()
    assert question.tenant == "acme"
    assert question.end - question.begin <= limit * WIDTHS[width].seconds
    assert question.batch == {None: None, "true": True, "false": False}[batch]
    assert one.group_by == tuple(dict.fromkeys(group_by))
    if by is ADMIN:
        assert question.projects == (projects or None)
    else:
        assert question.projects == (PROJECT,)


def test_a_key_for_usage_sees_no_other_project() -> None:
    assert asked(MEMBER, project_ids="proj_0").question.projects == ()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"start_time": ""}, "start_time"),
        ({"start_time": "-1"}, "start_time"),
        ({"start_time": "1.5"}, "start_time"),
        ({"start_time": "2026-11-23"}, "start_time"),
        ({"start_time": 1_700_000_000_000}, "start_time"),
        ({"start_time": [1, 2]}, "start_time"),
        ({"end_time": 0}, "end_time"),
        ({"end_time": 1_700_000_000_000}, "end_time"),
        ({"bucket_width": "1w"}, "bucket_width"),
        ({"limit": 0}, "limit"),
        ({"limit": 32}, "limit"),
        ({"limit": 169, "bucket_width": "1h"}, "limit"),
        ({"limit": 1441, "bucket_width": "1m"}, "limit"),
        ({"group_by": "colour"}, "group_by"),
        ({"group_by": "line_item"}, "group_by"),
        ({"batch": "yes"}, "batch"),
        ({"models": "a\0"}, "models"),
        ({"project_ids": ""}, "project_ids"),
        ({"api_key_ids": "\n"}, "api_key_ids"),
        ({"page": "2"}, "page"),
        ({"colour": 1}, "colour"),
    ],
)
def test_bad_parameters_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BatonError) as caught:
        asked(**fields)
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, field)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"user_ids": "u"}, "user_ids"),
        ({"group_by": "user_id"}, "group_by"),
        ({"group_by": "api_source"}, "group_by"),
    ],
)
def test_what_is_not_here_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BatonError) as caught:
        asked(**fields)
    assert (caught.value.reason, caught.value.field) == (Reason.UNSUPPORTED_PARAMETER, field)


def group(begin: int, **labels: Any) -> UsageGroup:
    return UsageGroup(begin, Labels(**labels), Sums(requests=1, prompt_tokens=5, cached_tokens=2))


def shown(one: Asked, groups: list[UsageGroup]) -> Any:
    def named(labels: Labels) -> dict[str, Any]:
        return completions._named(one.group_by, labels)

    return page.page(one, groups, named, completions._result)


def test_empty_buckets_are_there_and_results_are_merged_by_what_is_shown() -> None:
    one = asked(end_time=3 * DAY, group_by="model")
    told = shown(
        one,
        [
            group(DAY, model="m", adapter=""),
            group(DAY, model="m", adapter="a"),
            group(DAY, model="n", adapter="a"),
        ],
    )
    assert [len(bucket["results"]) for bucket in told["data"]] == [0, 2, 0]
    a, m = told["data"][1]["results"]
    assert (a["model"], a["num_model_requests"], a["input_tokens"]) == ("a", 2, 10)
    assert (m["model"], m["input_uncached_tokens"]) == ("m", 3)
    assert (m["project_id"], m["batch"], m["user_id"]) == (None, None, None)
    assert (told["has_more"], told["next_page"]) == (False, None)


def test_a_page_ends_before_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_GROUPS", 3)
    one = asked(end_time=4 * DAY, group_by="api_key_id")
    groups = [group(at * DAY, key=f"key_{n}") for at in range(3) for n in range(2)][:4]
    told = shown(one, groups)  # the third bucket may have more than was asked for
    assert [len(bucket["results"]) for bucket in told["data"]] == [2]
    assert told["has_more"]
    rest = asked(end_time=4 * DAY, group_by="api_key_id", page=told["next_page"])
    assert rest.range.begin == DAY
    assert rest.page_question() == replace(one.page_question(), begin=DAY)
    with pytest.raises(BatonError, match="bucket has more than 3 results"):
        shown(one, [group(0, key=f"key_{n}") for n in range(4)])


def test_another_question_s_page_is_refused() -> None:
    token = shown(asked(limit=1), [])["next_page"]
    assert asked(limit=5, page=token).range.begin == DAY  # a page may be longer
    for fields in ({"batch": "true"}, {"start_time": 5}, {"bucket_width": "1h"}):
        with pytest.raises(BatonError, match="page:"):
            asked(page=token, **fields)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, (20_000 * DAY, 20_001 * DAY)),
        ({"date": "1970-01-02"}, (DAY, 2 * DAY)),
        ({"start_date": "1970-01-01", "end_date": "1970-01-02"}, (0, 2 * DAY)),
    ],
)
def test_days(fields: dict[str, str], seconds: tuple[int, int]) -> None:
    assert days(fields).seconds == seconds


def days(fields: dict[str, str]) -> Any:
    from datetime import date, timedelta

    query = QueryString(urlencode(fields).encode(), ("date", "start_date", "end_date"))
    return read_days(query, date(1970, 1, 1) + timedelta(days=20_000))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"date": "yesterday"}, "date"),
        ({"date": "20261123"}, "date"),
        ({"date": "2026-02-30"}, "date"),
        ({"date": "9999-12-31"}, "date"),
        ({"date": "2026-11-23", "end_date": "2026-11-24"}, "end_date"),
        ({"end_date": "2026-11-24"}, "start_date"),
        ({"start_date": "2026-11-24", "end_date": "2026-11-23"}, "end_date"),
        ({"start_date": "2020-01-01", "end_date": "2021-01-01"}, "end_date"),
    ],
)
def test_bad_days_are_refused_by_name(fields: dict[str, str], field: str) -> None:
    with pytest.raises(BatonError) as caught:
        days(fields)
    assert caught.value.field == field
