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

RECEIVERS = """
with recursive receiver(tenant, endpoint) as (
    (select tenant, endpoint from webhook_deliveries order by tenant, endpoint limit 1)
    union all
    select next.tenant, next.endpoint from receiver cross join lateral (
        select tenant, endpoint from webhook_deliveries
        where (tenant, endpoint) > (receiver.tenant, receiver.endpoint)
        order by tenant, endpoint limit 1
    ) as next
)
select tenant, endpoint from (
    select receiver.*, row_number() over (partition by tenant order by random()) as turn
    from receiver where $1 >= (
        select due from webhook_deliveries as one
        where one.endpoint = receiver.endpoint and one.tenant = receiver.tenant
        order by due limit 1
    )
) as found
order by turn limit $2
"""
"""Receivers with deliveries that are due, found by two steps of the indexes each, however many
deliveries these are. Values: time, and the most receivers, which tenants share equally."""

CLAIM = """
with due as (
    select found.* from unnest($3::text[], $4::uuid[], $5::int[]) as room(tenant, endpoint, places)
    cross join lateral (
        select tenant, endpoint, event from webhook_deliveries as one
        where one.endpoint = room.endpoint and one.tenant = room.tenant and due <= $1
        order by due limit room.places for update skip locked
    ) as found
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
"""Claim what is due, of each receiver only as many as it has places. Values: time, end of the
lease, and the receivers with their places, by column."""

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
