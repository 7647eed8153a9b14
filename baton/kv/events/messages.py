"""Pack changes of held blocks into messages below 1 MiB. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from baton.internal.v1 import kvevents_pb2 as pb
from baton.kv.events.replica import BlockSpace
from baton.kv.keys import pack, unpack

STORED = "stored"
EVICTED = "evicted"
MOVED = "moved"

MAX_RUN_KEYS = 4096
"""Keys in one run: 64 KiB."""
MAX_MESSAGE_KEYS = 49_152
"""Keys in one message: 768 KiB, so that messages stay below 1 MiB."""
MAX_MESSAGE_EVENTS = 4096

T = TypeVar("T")


def make_event(kind: str, space: BlockSpace, keys: bytes) -> pb.BlockEvent:
    """Return one change to a run of blocks; `kind` is STORED, EVICTED or MOVED."""
    run = _run(space, keys)
    if kind == STORED:
        return pb.BlockEvent(stored=run)
    return pb.BlockEvent(evicted=run) if kind == EVICTED else pb.BlockEvent(tier_moved=run)


def in_messages(
    epoch: str, first: int, events: Sequence[tuple[pb.BlockEvent, int]]
) -> Iterator[tuple[pb.WatchResponse, int]]:
    """Yield messages of events, each with its number of keys.

    Args:
        epoch: of the log.
        first: sequence number of the first event.
        events: each with its number of keys.
    """
    at = 0
    while at < len(events):
        end, keys = at, 0
        while end < len(events) and end - at < MAX_MESSAGE_EVENTS:
            if end > at and keys + events[end][1] > MAX_MESSAGE_KEYS:
                break
            keys += events[end][1]
            end += 1
        batch = [event for event, _ in events[at:end]]
        message = pb.Events(epoch=epoch, first_sequence=first + at, events=batch)
        yield pb.WatchResponse(events=message), keys
        at = end


def snapshot_messages(
    epoch: str, sequence: int, held: Mapping[BlockSpace, Mapping[bytes, None]]
) -> Iterator[pb.WatchResponse]:
    """Yield a snapshot of all held blocks in pieces, as of when the first piece is requested."""
    runs = [
        _run(space, pack(part))
        for space, keys in held.items()
        for part in split(list(keys), MAX_RUN_KEYS)
    ]
    pieces = list(split(runs, MAX_MESSAGE_KEYS // MAX_RUN_KEYS)) or [[]]
    for number, piece in enumerate(pieces):
        yield pb.WatchResponse(
            snapshot=pb.Snapshot(
                epoch=epoch,
                sequence=sequence,
                runs=piece,
                last=number == len(pieces) - 1,
                piece=number,
            )
        )


def thin_out(message: pb.WatchResponse, every_nth: int) -> pb.WatchResponse:
    """Return a copy with about one key in `every_nth`.

    Events that lose all keys stay: their count is the sequence.
    """
    thin = pb.WatchResponse()
    thin.CopyFrom(message)  # other subscribers receive the same message
    changed = (getattr(event, event.WhichOneof("event") or "") for event in thin.events.events)
    for run in (*thin.snapshot.runs, *changed):
        keys = unpack(run.keys)
        run.keys = pack([k for k in keys if not int.from_bytes(k[:8], "big") % every_nth])
    return thin


def _run(space: BlockSpace, keys: bytes) -> pb.BlockRun:
    return pb.BlockRun(layout_id=space.layout_id, tier=space.tier, group=space.group, keys=keys)


def split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive parts of at most `size` items."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
