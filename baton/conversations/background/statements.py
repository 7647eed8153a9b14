"""The statements of responses that run in the background."""

EXISTS = "select to_regclass('response_events') is not null as exists"

BEGIN_RUN = """
insert into background_responses (tenant, project, id, owner, lease_until, request, body)
values ($1, $2, $3, $4, now() + $5 * interval '1 second', $6, $7)
"""

RENEW = """
with renewed as (
    update background_responses run set lease_until = now() + $2 * interval '1 second'
    from unnest($3::text[], $4::uuid[], $5::int[]) as mine(tenant, id, attempt)
    where run.tenant = mine.tenant and run.id = mine.id and run.owner = $1
        and run.attempt = mine.attempt
    returning run.tenant, run.id, run.cancelled
), written as (
    insert into response_events (tenant, response, last, events, output)
    select piece.tenant, piece.response, piece.last, piece.events, piece.output
    from unnest($6::text[], $7::uuid[], $8::bigint[], $9::bytea[], $10::bytea[])
        as piece(tenant, response, last, events, output)
    join renewed on renewed.tenant = piece.tenant and renewed.id = piece.response
)
select id, cancelled from renewed
"""
"""Renew leases and write pieces of their responses. Values: owner; seconds; tenants, ids and
attempts of the leases; tenants, responses and contents of the pieces."""

CLAIM = """
with picked as materialized (
    select tenant, id from background_responses where lease_until < now()
    order by lease_until limit $3 for update skip locked
)
update background_responses set owner = $1, attempt = attempt + 1,
    lease_until = now() + $2 * interval '1 second'
where (tenant, id) in (select tenant, id from picked)
returning tenant, project, id, attempt, cancelled, request, body
"""
"""A subselect in place of `picked` may run once per row, and claim more than its limit."""

RELEASE_RUN = """
update background_responses set owner = '', lease_until = now() + $5 * interval '1 second'
where tenant = $1 and id = $2 and owner = $3 and attempt = $4
"""

END_RUN = """
delete from background_responses where tenant = $1 and id = $2 and owner = $3 and attempt = $4
returning id
"""

WRITE_PIECE = """
insert into response_events (tenant, response, last, events, output) values ($1, $2, $3, $4, $5)
"""

RUNNING = """
select owner = '' or lease_until < now() as queued, cancelled, body from background_responses
where tenant = $1 and project = $2 and id = $3
"""

CANCEL_RUN = """
update background_responses set cancelled = true where tenant = $1 and project = $2 and id = $3
returning id
"""

PIECES_FROM = """
select last, events from response_events
where tenant = $1 and response = $2 and last >= $3 order by last limit $4
"""

OUTPUTS = """
select last, output from response_events where tenant = $1 and response = $2 order by last
"""

DELETE_EVENTS = "delete from response_events where tenant = $1 and response = $2"
