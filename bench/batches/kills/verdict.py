"""Whether a batch that ended has each line once, and its usage records are what its files say."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from baton.request.prices import Price
from baton.usage.record import UsageRecord

Line = dict[str, Any]


def file_differences(
    batch: Line, given: Sequence[str], output: Sequence[Line], errors: Sequence[Line]
) -> Iterable[str]:
    """Report what of the files of a batch is wrong.

    Args:
        batch: as its client sees it.
        given: the lines of its input, by custom id.
        output: lines of its output file.
        errors: lines of its error file.
    """
    name = batch["id"]
    if batch["status"] != "completed":
        yield f"{name} is {batch['status']}"
    counts = batch["request_counts"]
    found = {"total": len(given), "completed": len(output), "failed": len(errors)}
    if counts != found:
        yield f"{name}: counts {counts}, and its files have {found}"
    place = {custom_id: at for at, custom_id in enumerate(given)}
    for what, lines in (("output", output), ("errors", errors)):
        places = [place.get(line["custom_id"], -1) for line in lines]
        if places != sorted(places):
            yield f"{name}: {what} are not in the order of the input"
    times = Counter(line["custom_id"] for line in (*output, *errors))
    for custom_id in given:
        if times[custom_id] != 1:
            yield f"{name}: {custom_id} is there {times[custom_id]} times"
    yield from (f"{name}: {custom_id} was not sent" for custom_id in times.keys() - place.keys())
    usage = batch["usage"]
    said = (usage["input_tokens"], usage["output_tokens"])
    tokens = [tokens_of(line) for line in output]
    summed = (sum(prompt for prompt, *_ in tokens), sum(out for *_, out in tokens))
    if said != summed:
        yield f"{name}: usage says {said}, and its lines {summed}"


def usage_differences(
    output: Iterable[Line], records: Iterable[UsageRecord], price: Price
) -> tuple[list[str], dict[str, int]]:
    """Return what differs between usage records and lines of outputs, and the sums of both."""
    problems: list[str] = []
    found: dict[str, list[UsageRecord]] = defaultdict(list)
    for record in records:
        if record.batch:
            found[record.request_id].append(record)
    lines = {line["id"]: line for line in output}
    sums = {
        "said": sum(price.cost(*tokens_of(line)) for line in lines.values()),
        "recorded": sum(one.cost_nanodollars or 0 for own in found.values() for one in own),
    }
    for name, line in lines.items():
        wanted = [(*tokens_of(line), price.cost(*tokens_of(line)))]
        own = [
            (one.prompt_tokens, one.cached_tokens, one.output_tokens, one.cost_nanodollars)
            for one in found[name]
        ]
        if own != wanted:
            problems.append(f"{name}: the output says {wanted}, recorded {own}")
    for name in found.keys() - lines.keys():
        billed = [one for one in found[name] if one.cost_nanodollars]
        problems += [f"{name}: is in no output, recorded {one}" for one in billed]
    if sums["said"] != sums["recorded"]:
        problems.append(f"the sums differ: {sums}")
    return problems, sums


def tokens_of(line: Line) -> tuple[int, int, int]:
    """Return a line's prompt tokens, those of them that were cached, and its output tokens."""
    usage = line["response"]["body"]["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]
