"""Conversion of budgets to and from dollars."""

from typing import Any

from baton.cli.shared.errors import CommandError
from baton.request.prices import dollars, parse_dollars
from baton.tenancy.limits.spec import BUDGET, check_budget
from baton.tenancy.records.audit import shown
from baton.tenancy.records.spending import Spent
from baton.tenancy.records.tenants import Key, Project, Tenant


def read_budget(text: str) -> int:
    """Return a budget in nano-dollars.

    Raises:
        CommandError: the text is not an amount, or is out of range.
    """
    try:
        value = parse_dollars(text)
        check_budget(value)
    except ValueError as error:
        raise CommandError(f"--budget-per-month: {error}.") from None
    return value


def shown_with(record: Tenant | Project | Key, spending: dict[str, Spent]) -> dict[str, Any]:
    """Return the fields of a record for JSON, with this month's spending if it is counted.

    Args:
        record: the record.
        spending: spending by ID.
    """
    fields = shown(record)
    spent = spending.get(record.id)
    if spent is not None:
        fields["spent_nanodollars"] = spent.spent
        fields["reserved_nanodollars"] = spent.reserved
    return fields


def budget_of(record: Tenant | Project | Key, spending: dict[str, Spent]) -> str:
    """Return this month's spending and budget, as text."""
    budget: int = getattr(record, BUDGET)
    spent = spending.get(record.id)
    if not budget and spent is None:
        return "none"
    most = f"of {dollars(budget)}" if budget else "of any"
    return f"{dollars(spent.spent if spent else 0)} {most}"
