"""Sums by project and day, and ids that tell records apart."""

import uuid
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from baton.cli.errors import CommandError
from baton.cli.usage import usage
from baton.prices import Price, PriceTable
from baton.usage.record import RecordIds, UsageRecord, encode
from baton.usage.report import RecordFiles, Team, Totals, summarize
from tests.support.usage import DAY_MS, begun, ended

PROVIDER = PriceTable({"m": Price(1000, 500, 2000)})


def write(path: Path, records: Iterable[UsageRecord]) -> Path:
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    return path


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
    teams = summarize(records, PROVIDER)
    day, next_day = date(1970, 1, 3), date(1970, 1, 4)
    assert list(teams) == [
        Team(day, "acme", "proj_0"),
        Team(day, "acme", "proj_1"),
        Team(next_day, "acme", "proj_1"),
    ]
    one = 6 * 1000 + 4 * 500 + 5 * 2000
    assert teams[Team(day, "acme", "proj_1")] == Totals(
        requests=5,
        lost=1,
        prompt_tokens=50,
        cached_tokens=16,
        output_tokens=20,
        cost_nanodollars=123,
        unpriced=2,
        provider_nanodollars=2 * one,
        provider_unpriced=1,
    )


def test_days_are_chosen_and_copies_are_counted_once(tmp_path: Path) -> None:
    records = [ended(begun(began_ms=day * DAY_MS)) for day in range(5)]
    files = [
        write(tmp_path / "a.jsonl", records[:3]),
        write(tmp_path / "b.jsonl", records[1:]),
    ]
    found = RecordFiles(files, date(1970, 1, 2), date(1970, 1, 4))
    assert list(found) == records[1:4]
    assert (found.doubles, found.damaged) == (2, 0)


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
    usage(tmp_path, None, "", "", Console(width=200), as_json=False)
    out = capsys.readouterr().out.split()
    for word in ("1970-01-02", "acme", "proj_1", "20", "1.50", "0.000018", "lost"):
        assert word in out
    assert "1 copies" in " ".join(out)
    with pytest.raises(CommandError, match="--since"):
        usage(tmp_path, None, "yesterday", "", Console(), as_json=False)
    with pytest.raises(CommandError, match="cannot be read"):
        usage(tmp_path / "none.jsonl", None, "", "", Console(), as_json=False)
    with pytest.raises(CommandError, match="BATON_USAGE_JSONL_PATH"):
        usage(None, None, "", "", Console(), as_json=False)
