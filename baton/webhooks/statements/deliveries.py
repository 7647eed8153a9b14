"""The statements of deliveries that are not at their end."""

EXISTS = "select to_regclass('webhook_deliveries') is not null"

ADD = """
insert into webhook_deliveries (tenant, project, endpoint, event, type, body, due)
select $1, $2, id, $3, $4, $5, $6 from webhook_endpoints
where tenant = $1 and project = $2 and $4 = any(event_types)
"""
"""Values: tenant, project, event, type, body, time."""

ADD_CALLBACK = """
insert into webhook_deliveries (tenant, project, event, type, body, due, endpoint, url)
values ($1, $2, $3, $4, $5, $6, $7, $8)
"""
"""Values: as of ADD, and what tells the receiver apart, and its URL."""

CLAIM = """
with recursive receiver(id) as (
    (select endpoint from webhook_deliveries order by endpoint limit 1)
    union all
    select (
        select endpoint from webhook_deliveries where endpoint > receiver.id
        order by endpoint limit 1
    )
    from receiver where receiver.id is not null
), room as (
    select receiver.id, greatest($3 - coalesce(busy.count, 0), 0) as places
    from receiver left join unnest($5::uuid[], $6::int[]) as busy(id, count) using (id)
    where receiver.id is not null order by random()
), due as (
    select found.* from room cross join lateral (
        select tenant, endpoint, event from webhook_deliveries
        where endpoint = room.id and due <= $1 order by due limit room.places
        for update skip locked
    ) as found
    limit $4
), claimed as (
    update webhook_deliveries as delivery set due = $2, attempt = attempt + 1
    from due where delivery.tenant = due.tenant and delivery.endpoint = due.endpoint
        and delivery.event = due.event
    returning delivery.*
)
select claimed.tenant, claimed.project, claimed.endpoint, claimed.event, claimed.type,
    claimed.body, claimed.attempt, coalesce(nullif(claimed.url, ''), one.url, '') as url,
    one.secret, case when one.old_until > $1 then one.old_secret else '' end as old_secret
from claimed left join webhook_endpoints as one on one.tenant = claimed.tenant
    and one.project = claimed.project and one.id = claimed.endpoint
"""
"""Claim what is due, of all endpoints alike: of each only as many as it has places.

The endpoints that have deliveries are found by one step of the index each, however many deliveries
these are. Values: time, end of the lease, the most per endpoint and of all, endpoints that are
being delivered to, and how many at once.
"""

FINISH = """
with ended as (
    delete from webhook_deliveries where tenant = $1 and endpoint = $3 and event = $4
        and attempt = $5 and $12::timestamptz is null
), postponed as (
    update webhook_deliveries set due = $12 where tenant = $1 and endpoint = $3 and event = $4
        and attempt = $5 and $12::timestamptz is not null
)
insert into webhook_attempts (tenant, project, endpoint, event, attempt, type, began, seconds,
    status, outcome, detail)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing
"""
"""Log an attempt, and end or postpone its delivery, unless another process has that by now."""

DROP = """
delete from webhook_deliveries
where tenant = $1 and endpoint = $2 and event = $3 and attempt = $4
"""

WAITING = """
select endpoint, count(*) as count from webhook_deliveries
where tenant = $1 and project = $2 group by endpoint
"""

OLDEST = "select count(*) as count, min(event::text) as oldest from webhook_deliveries"
