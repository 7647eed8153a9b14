"""Sums by project and day, beside a provider's prices, and ids that tell records apart."""

import random
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from baton.cli.admin.usage.command import usage
from baton.cli.admin.usage.options import By, UsageOptions
from baton.cli.shared.errors import CommandError
from baton.request.prices import Price, PriceTable
from baton.usage.record import RecordIds, UsageRecord, encode
from baton.usage.report.files import RecordFiles
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.totals import PRICE_COLUMNS, Totals, shown, total_of, totals_by
from tests.support.usage.random_records import random_record
from tests.support.usage.records import DAY_MS, begun, ended

PROVIDER = PriceTable({"m": Price(1000, 500, 2000)})
DAYS = Question(width=86_400, by=("tenant", "project", *PRICE_COLUMNS))


def write(path: Path, records: Iterable[UsageRecord]) -> Path:
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    return path


def team(group: UsageGroup) -> tuple[int, str | None, str | None]:
    return group.begin // 86_400, group.labels.tenant, group.labels.project


def test_a_project_s_day_is_summed_up() -> None:
    late = ended(begun(began_ms=3 * DAY_MS - 1), cost_nanodollars=100)
    records = [
        late,
        ended(begun(began_ms=2 * DAY_MS), cost_nanodollars=23),
        ended(begun(began_ms=2 * DAY_MS, model="x")),
        ended(begun(began_ms=2 * DAY_MS), outcome="CANCELLED", first_token_seconds=None),
        begun(began_ms=2 * DAY_MS),
        ended(begun(began_ms=3 * DAY_MS)),
        ended(begun(began_ms=2 * DAY_MS, project="proj_0")),
    ]
    groups = DAYS.answer(records)
    teams = totals_by(groups, team, PROVIDER)
    assert list(teams) == [(2, "acme", "proj_0"), (2, "acme", "proj_1"), (3, "acme", "proj_1")]
    one = 6 * 1000 + 4 * 500 + 5 * 2000
    assert teams[2, "acme", "proj_1"] == Totals(
        requests=5,
        lost=1,
        prompt_tokens=50,
        cached_tokens=16,
        output_tokens=20,
        cost_nanodollars=123,
        unpriced=2,
        provider_nanodollars=2 * one,
        provider_unpriced=1,
        saved_nanodollars=2 * one - 123,
    )
    assert total_of(groups, PROVIDER).requests == 7


def test_groups_come_to_what_their_requests_come_to() -> None:
    draw = random.Random(7)
    prices = PriceTable(
        {
            "m": Price(3, 2, 7),
            "m+batch": Price(1, 1, 1),
            "tuned@pro": Price(11, 5, 13),
            "*": Price(1, 1, 2),
        }
    )
    tenants = [("acme", ("proj_1", "proj_2"))]
    records = [random_record(draw, tenants, days=5) for _ in range(500)]
    total = total_of(DAYS.answer(records), prices)
    expected = Totals()
    for record in records:
        (group,) = DAYS.answer([record])
        expected.add(group, prices)
    assert total == expected
    charged = [one for one in records if one.first_token_seconds is not None]
    assert total.provider_nanodollars == sum(
        price.cost(one.prompt_tokens, one.cached_tokens or 0, one.output_tokens or 0)
        for one in charged
        if (price := prices.find(one.model, one.adapter, one.tier, batch=one.batch))
    )


def test_without_a_provider_s_prices_nothing_is_compared() -> None:
    total = total_of(DAYS.answer([ended(begun(), cost_nanodollars=7)]), PriceTable({}))
    told = shown(total, compares=False)
    assert (told["cost_usd"], told["cost_nanodollars"]) == ("0.000000007", 7)
    assert {told[name] for name in told if name.startswith(("provider_", "saved_"))} == {None}
    assert shown(Totals(saved_nanodollars=-5), compares=True)["saved_usd"] == "-0.000000005"


def test_days_are_chosen_and_copies_are_counted_once(tmp_path: Path) -> None:
    records = [ended(begun(began_ms=day * DAY_MS)) for day in range(5)]
    files = [
        write(tmp_path / "a.jsonl", records[:3]),
        write(tmp_path / "b.jsonl", records[1:]),
    ]
    found = RecordFiles(files, Question(86_400, 4 * 86_400))
    assert list(found) == records[1:4]
    assert (found.doubles, found.damaged) == (2, 0)


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ({"tenant": "acme"}, True),
        ({"tenant": "other"}, False),
        ({"projects": ("proj_0", "proj_1")}, True),
        ({"projects": ()}, False),
        ({"keys": ("key_1",)}, True),
        ({"keys": ("key_2",)}, False),
        ({"names": ("a",)}, True),
        ({"names": ("m",)}, False),
        ({"batch": True}, True),
        ({"batch": False}, False),
        ({"line_items": ("a, batch",)}, True),
        ({"line_items": ("a", "m, batch")}, False),
        ({"begin": 86_400, "end": 86_401}, True),
        ({"begin": 86_401}, False),
        ({"end": 86_400}, False),
    ],
)
def test_a_question_says_which_records_count(asked: dict[str, Any], counts: bool) -> None:
    record = ended(begun(adapter="a", batch=True))
    assert replace(DAYS, **asked).wants(record) is counts


def test_ids_are_uuids_by_time_and_all_differ() -> None:
    ids = RecordIds()
    drawn = [ids.draw(now) for now in range(1000)] + [ids.draw(999) for _ in range(1000)]
    assert len(set(drawn)) == 2000
    assert sorted(drawn)[:999] == drawn[:999]
    for now, text in enumerate(drawn[:1000]):
        one = uuid.UUID(text)
        assert (str(one), one.version, one.variant) == (text, 7, uuid.RFC_4122)
        assert one.int >> 80 == now
    assert RecordIds().draw(5) != RecordIds().draw(5)


def test_the_command_prints_sums_beside_a_provider_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [ended(begun(), cost_nanodollars=1_500_000_000), begun()]
    write(tmp_path / "usage-1.jsonl", [records[0], *records])
    monkeypatch.setenv("BATON_USAGE_PROVIDER_PRICES", "m=1/0.5/2")
    wide = Console(width=200)
    usage(UsageOptions(path=tmp_path), wide, as_json=False)
    out = capsys.readouterr().out.split()
    for word in ("1970-01-02", "acme", "proj_1", "20", "1.50", "0.000018", "-1.499982", "lost"):
        assert word in out
    assert "1 duplicate records" in " ".join(out)
    usage(UsageOptions(path=tmp_path, by=[By.KEY, By.MODEL]), wide, as_json=False)
    headings, row, *_ = capsys.readouterr().out.splitlines()
    assert headings.split()[:4] == ["tenant", "project", "key", "model"]
    assert row.split()[:5] == ["acme", "proj_1", "key_1", "m", "2"]
    for options, sentence in (
        (UsageOptions(path=tmp_path, since="yesterday"), "--since"),
        (UsageOptions(path=tmp_path, since="2026-01-02", until="2026-01-01"), "--until"),
        (UsageOptions(path=tmp_path / "none.jsonl"), "cannot be read"),
        (UsageOptions(state_url="mysql://a/b"), "postgresql://"),
        (UsageOptions(), "BATON_STATE_URL"),
    ):
        with pytest.raises(CommandError, match=sentence):
            usage(options, Console(), as_json=False)
