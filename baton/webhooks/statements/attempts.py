"""The statements of the log of attempts."""

ADD = """
insert into webhook_attempts (tenant, project, endpoint, event, attempt, type, began, seconds,
    status, outcome, detail)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing
"""

RECENT = """
select endpoint, event, attempt, type, began, seconds, status, outcome, detail
from webhook_attempts where tenant = $1 and project = $2
    and ($3::uuid is null or endpoint = $3) and ($4::uuid is null or event = $4)
order by began desc limit $5
"""

FORGET = """
delete from webhook_attempts where ctid in (
    select ctid from webhook_attempts where began < $1 limit $2
)
"""
