"""`GET /v1/organization/costs`: what requests cost."""

from time import time

from msgspec import Raw

from baton.request.prices import dollars
from baton.usage.report.question import Labels, Sums
from services.frontend.admin.call import AdminCall
from services.frontend.admin.objects import Object, RawBody
from services.frontend.admin.usage.asked import COST_WIDTHS, Groups, known, read
from services.frontend.admin.usage.page import page
from services.frontend.admin.usage.reader import encoded
from services.frontend.http.query import QueryString

_GROUPS: Groups = {
    "project_id": ("project",),
    "api_key_id": ("key",),
    "line_item": ("model", "adapter", "batch"),
}


async def costs(call: AdminCall) -> RawBody:
    """Return the cost of requests per day (UTC)."""
    query = QueryString(call.query, known("project_ids", "api_key_ids", "line_items"))
    asked = read(query, call.who, time(), COST_WIDTHS, _GROUPS)
    groups = await call.organizations.usage.groups(asked.page_question())
    items = "line_item" in asked.group_by

    def make() -> Object:
        return page(
            asked,
            groups,
            lambda labels: _named(asked.group_by, labels),
            lambda sums: _result(sums, items=items),
        )

    return await encoded(make)


def _named(group_by: tuple[str, ...], labels: Labels) -> Object:
    """Return the fields that name a result; those not grouped by are null."""
    return {
        "project_id": labels.project if "project_id" in group_by else None,
        "user_id": None,
        "api_key_id": labels.key if "api_key_id" in group_by else None,
        "line_item": labels.line_item if "line_item" in group_by else None,
        "api_source": None,
    }


def _result(sums: Sums, *, items: bool) -> Object:
    """Return the amount of a result, with the quantity for line items."""
    amount = {
        "value": Raw(dollars(sums.cost_nanodollars).encode()),  # all its digits
        "currency": "usd",
        "nanodollars": sums.cost_nanodollars,
    }
    return {
        "object": "organization.costs.result",
        "amount": amount,
        "quantity": sums.prompt_tokens + sums.output_tokens if items else None,
        "quantity_unit": "tokens" if items else None,
        "unpriced_requests": sums.unpriced,
    }
