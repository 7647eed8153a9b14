"""Formatting of an explanation: a few sentences, and a table of candidates."""

import time
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from baton.cli.shared.table import TextTable, show
from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.kv.tiers import tier_name
from baton.kv.wire.groups import group_text

_PARTS = ("queue", "transfer", "prefill", "delay", "batch")
"""Parts of the score."""
_WHY_OUT = {
    "tokenizer": "has another tokenizer",
    "adapter": "does not serve the adapter",
    "excluded": "failed this request before",
    "draining": "is draining",
    "stale": "its load reports are stale",
    "memory": "has too few free KV pages",
    "itl": "its streams would exceed the inter-token latency limit",
    "unpaired": "no decode worker can receive its KV",
    "shortlist": "other prefill workers score better",
    "disaggregation": "the prefill is already placed",
}
_NEGLIGIBLE_SECONDS = 5e-4


def print_explanation(console: Console, router: str, explanation: router_pb2.Explanation) -> None:
    """Print one decision.

    Args:
        console: to print on.
        router: ID of the router.
        explanation: explanation from the router.
    """
    for line in _sentences(router, explanation):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for line in _cut_lines(explanation.cuts):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if explanation.candidates:
        show(console, candidates_table(explanation))
    console.print()


def candidates_table(explanation: router_pb2.Explanation) -> TextTable:
    """Return the cost of each candidate, in milliseconds, and why it was not chosen."""
    table = TextTable(
        ("", "worker", "score", *_PARTS, "cached", "to compute"),
        right=frozenset({"score", *_PARTS, "to compute"}),
        note_heading="why not",
    )
    chosen = next((one for one in explanation.candidates if one.chosen), None)
    for one in explanation.candidates:
        table.add(
            "→" if one.chosen else "",
            Text(_workers(one), style="bold" if one.chosen else ""),
            *(_milliseconds(value) for value in (one.score, *_parts(one))),
            _cached(one),
            str(one.uncached_tokens or ""),
            note=why_not(one, chosen),
        )
    return table


def why_not(one: router_pb2.CandidateCosts, chosen: router_pb2.CandidateCosts | None) -> str:
    """Return briefly why a candidate was not chosen."""
    if one.chosen:
        return ""
    if one.exclusion == "itl" and one.itl_limit_seconds:
        step, limit = _milliseconds(one.step_seconds), _milliseconds(one.itl_limit_seconds)
        return f"its inter-token latency would be {step} ms; the limit is {limit} ms"
    if one.exclusion:
        return _WHY_OUT.get(one.exclusion, one.exclusion)
    if chosen is None:
        return ""
    more = one.score - chosen.score
    if more <= max(_NEGLIGIBLE_SECONDS, 0.01 * chosen.score):
        if chosen.prefill_worker and not one.prefill_worker:
            return "equal; kept free for decode"
        return "equal; the request id decided"
    worse = sorted(
        (
            (value - other, name)
            for name, value, other in zip(_PARTS, _parts(one), _parts(chosen), strict=True)
        ),
        reverse=True,
    )
    told = [f"{name} {_signed(by)}" for by, name in worse if by > _NEGLIGIBLE_SECONDS][:2]
    return f"{_signed(more)} ms: {', '.join(told)}" if told else f"{_signed(more)} ms"


def _sentences(router: str, explanation: router_pb2.Explanation) -> list[str]:
    what = f"{explanation.prompt_tokens} prompt tokens of tenant {explanation.tenant or 'none'}"
    what += f" for {explanation.model}"
    if explanation.request_id:
        ago = max(0.0, time.time() - explanation.decided_seconds)
        lines = [f"Request {explanation.request_id}: {what}, decided by {router} {ago:.1f} s ago."]
    else:
        lines = [f"Now, at {router}: {what}."]
    if explanation.HasField("turn"):
        turn, order = explanation.turn, explanation.turn.order
        lines.append(
            f"Queue: {turn.ahead} of {turn.waiting} queued requests go first. Tier {order.tier}, "
            f"class {order.priority_class}; its tenant (weight {turn.weight:g}) is "
            f"{order.tenant_lead:,.0f} tokens ahead; key {order.key:.3f} s."
        )
    if explanation.request_id:
        lines.append(f"Time in the routers' queues: {explanation.waited_seconds * 1e3:,.0f} ms.")
    if explanation.HasField("refusal"):
        error = BatonError.from_status(explanation.refusal)
        lines.append(f"Rejected, {error.reason.name}: {error.message}.")
    if explanation.reason:
        lines.append(f"Chosen: {explanation.reason}.")
    return lines


def _cut_lines(cuts: Iterable[router_pb2.HolderCut]) -> list[str]:
    """Say which prefix each holder lets continue, and which groups lack what for more."""
    lines = []
    for cut in cuts:
        tier = "engine" if tier_name(cut.tier) == "engine" else f"store, {tier_name(cut.tier)}"
        line = f"Prefix at {cut.holder} ({tier}): {cut.cut_tokens} tokens can be continued"
        lacks = [
            f"{group_text(lack.kind, lack.span_tokens)} lacks "
            f"{lack.missing_blocks} of {lack.needed_blocks} blocks"
            for lack in cut.groups
            if lack.missing_blocks
        ]
        if lacks:
            line += f"; for {cut.prefix_tokens}, {', '.join(lacks)}"
        lines.append(f"{line}.")
    return lines


def _workers(one: router_pb2.CandidateCosts) -> str:
    if one.prefill_worker and one.decode_worker:
        return f"{one.prefill_worker} → {one.decode_worker}"
    return one.prefill_worker or one.decode_worker


def _parts(one: router_pb2.CandidateCosts) -> tuple[float, ...]:
    return (
        one.queue_seconds,
        one.transfer_seconds,
        one.prefill_seconds,
        one.delay_seconds,
        one.batch_seconds,
    )


def _cached(one: router_pb2.CandidateCosts) -> str:
    found = (
        (one.engine_tokens, "engine"),
        (one.local_tokens, "store"),
        (one.remote_tokens, "elsewhere"),
    )
    return ", ".join(f"{tokens} {where}" for tokens, where in found if tokens) or "0"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds else "0"


def _signed(seconds: float) -> str:
    return f"{seconds * 1e3:+,.1f}"
