"""`baton route explain`: queries routers for the reasons of a placement, and prints them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.console import Console

from baton.cli.inspect.route.auto import AutoExplanation, explain_auto
from baton.cli.inspect.route.describe import query_of
from baton.cli.inspect.route.described_request import DescribedRequest
from baton.cli.inspect.route.ended import EndedRequest, print_ended
from baton.cli.inspect.route.record_options import RecordOptions
from baton.cli.inspect.route.records import recorded
from baton.cli.inspect.route.tables import print_explanation
from baton.cli.shared.cluster_view import ClusterView, watch_cluster
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import EtcdOptions
from baton.cli.shared.reach import certificate_hint
from baton.cluster.etcd import certificate as etcd_certificate
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.rpc.channel.pool import ChannelPool
from baton.telemetry import logs
from baton.usage.record import UsageRecord, decode

CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RouterExplanations:
    """The explanations of one router."""

    router: str
    explanations: Sequence[router_pb2.Explanation]
    kept: Sequence[router_pb2.KeptRequest] = ()
    kept_error: str = ""
    auto: AutoExplanation | None = None
    """How rules chose the model; None: the described request names it."""


def explain(
    options: EtcdOptions,
    console: Console,
    described: DescribedRequest,
    records: RecordOptions,
    request_id: str,
    router: str,
    *,
    as_json: bool,
) -> None:
    """Print the reasons for a request's placement.

    Args:
        options: the cluster.
        console: to print on.
        described: a hypothetical request, if `request_id` is empty.
        records: where usage records are, for a request that no router knows.
        request_id: ID of a request that was placed.
        router: ID of the only router to query; empty: all.
        as_json: print JSON.

    Raises:
        CommandError: no request is given, no router responds, or none knows the request.
    """
    is_described = bool(described.text or described.prompt_tokens)
    if bool(request_id) == is_described:
        raise CommandError(
            "Name a request id, or describe a request with --prompt, --prompt-file or "
            "--prompt-tokens."
        )
    if described.text and described.prompt_tokens:
        raise CommandError("--prompt-tokens replaces the prompt text: set only one of them.")
    logs.configure("route", "route", level="error")
    found = recorded(records, request_id) if request_id else []
    answers: list[RouterExplanations] = []
    try:
        at = options.resolve()
        answers = asyncio.run(_ask(at.endpoints, at.name, described, request_id, router))
    except CommandError:
        if not found:  # a cluster that is gone has its records all the same
            raise
    known = [answer for answer in answers if answer.explanations or answer.kept]
    ended = ended_requests(known, found)
    damaged = [f"{one.router}: {one.kept_error}" for one in answers if one.kept_error]
    if not (known or ended):
        raise CommandError(
            f"No router knows request {request_id!r}: each running router has its latest 1,000 "
            "decisions, and with history.path set, failed and slow requests and a sample of the "
            f"others. {_elsewhere(records)}{' '.join(f'{one}.' for one in damaged)}".rstrip(),
            EXIT_FAILED,
        )
    if as_json:
        plain = [_plain(answer) for answer in known]
        console.print_json(json.dumps([*plain, *(one.plain() for one in ended)]))
        return
    for one in ended:
        print_ended(console, one)
    fresh = [answer for answer in known if answer.explanations]
    for answer in fresh:
        if answer.auto is not None:
            sentence = answer.auto.sentence()
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        for explanation in answer.explanations:
            print_explanation(console, answer.router, explanation)
    if not fresh:  # else the kept decisions are these
        for answer in known:
            for kept in answer.kept:
                for explanation in kept.explanations:
                    print_explanation(console, answer.router, explanation)
    for line in damaged:
        console.print(f"{line}.", highlight=False, markup=False, soft_wrap=True)


async def _ask(
    endpoints: tuple[str, ...],
    cluster: str,
    described: DescribedRequest,
    request_id: str,
    router: str,
) -> list[RouterExplanations]:
    async with watch_cluster(endpoints, cluster) as view, ChannelPool() as channels:
        if not view.synced:
            raise CommandError(
                f"etcd is unreachable at {', '.join(endpoints)}: start a cluster with `baton up`, "
                f"or set --etcd-endpoint. {certificate_hint()}",
                EXIT_FAILED,
            )
        routers = _routers(view, cluster, router)
        auto = None
        if request_id:
            asked = router_pb2.ExplainRequest(request_id=request_id)
        else:
            query, auto = await _describe(view, endpoints, cluster, described)
            asked = router_pb2.ExplainRequest(query=query)
            routers = routers[:1]  # all know the same, except their own very recent placements
        found: list[RouterExplanations] = []
        errors: list[BatonError] = []
        for member in routers:
            stub = channels.get(member.address).stub(RouterServiceStub)
            try:
                response = await stub.Explain(asked, timeout=CALL_SECONDS)
            except BatonError as error:
                errors.append(error)
                continue
            explanations, kept = list(response.explanations), list(response.kept)
            found.append(
                RouterExplanations(member.id, explanations, kept, response.kept_error, auto)
            )
        if errors and not any(answer.explanations or answer.kept for answer in found):
            raise _failed(errors[0])
        return found


def _routers(view: ClusterView, cluster: str, wanted: str) -> list[cluster_pb2.Instance]:
    """Return the routers to query, in order of ID.

    Raises:
        CommandError: there are none.
    """
    members = sorted(view.instances.values(), key=lambda member: (member.draining, member.id))
    routers = [one for one in members if one.role == cluster_pb2.ROLE_ROUTER]
    chosen = [one for one in routers if wanted in ("", one.id)]
    if not chosen:
        there = ", ".join(one.id for one in routers) or "none"
        named = f"no router {wanted!r}" if wanted else "no router"
        raise CommandError(f"cluster {cluster!r} has {named}: {there}.", EXIT_FAILED)
    return chosen


async def _describe(
    view: ClusterView, endpoints: tuple[str, ...], cluster: str, described: DescribedRequest
) -> tuple[router_pb2.PlaceQuery, AutoExplanation | None]:
    try:
        async with Etcd(endpoints, certificate=etcd_certificate.current()) as etcd:
            auto = await explain_auto(view, etcd, cluster, described)
            if auto is not None:
                described = replace(described, model=auto.model)
            return await query_of(view, etcd, cluster, described), auto
    except EtcdError as error:
        raise CommandError(f"etcd is unreachable: {error}.", EXIT_FAILED) from error


def ended_requests(
    known: Sequence[RouterExplanations], found: Sequence[UsageRecord]
) -> list[EndedRequest]:
    """Return the ended requests that routers keep or records tell of, each once, latest first."""
    ended = {record.id: EndedRequest(record) for record in found}
    for answer in known:
        for kept in answer.kept:
            record = decode(kept.ended.record)
            ended[record.id] = EndedRequest(
                record, kept.ended.error, kept.ended.kind, answer.router
            )
    return sorted(ended.values(), key=lambda one: one.record.began_ms, reverse=True)


def _elsewhere(records: RecordOptions) -> str:
    if records.path is not None or records.clickhouse_url:
        return "It has no usage record there either. "
    return "Name its usage records with --path or --clickhouse-url. "


def _failed(error: BatonError) -> CommandError:
    if error.reason in (Reason.INVALID_FIELD, Reason.PERMISSION_DENIED):
        return CommandError(f"the router rejected the request: {error}.")
    return CommandError(f"no router is reachable ({error}). {certificate_hint()}", EXIT_FAILED)


def _plain(answer: RouterExplanations) -> dict[str, Any]:
    kept = [explanation for one in answer.kept for explanation in one.explanations]
    return {
        "router": answer.router,
        **({"auto": answer.auto.plain()} if answer.auto is not None else {}),
        "explanations": [
            MessageToDict(
                one, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            for one in answer.explanations or kept
        ],
    }
