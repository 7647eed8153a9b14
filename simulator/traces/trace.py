"""Traces of requests in the format of Mooncake: one JSON object a line.

    {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 14]}

`timestamp` is in milliseconds, lengths are in tokens. `hash_ids` names the blocks of the prompt,
whole ones and the last one: equal ids at equal positions mean equal prefixes. Without it, nothing
of a prompt is shared. `tenant` may be given too. Other fields are ignored.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 512
MAX_TOKENS = 100_000_000
"""Highest plausible number of tokens of one prompt or output."""


class TraceError(Exception):
    """A trace cannot be read; the message is a sentence with the location and the reason."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time. Each list and array has one entry per request."""

    times: NDArray[np.float64]
    """Seconds since the first request."""
    prompt_tokens: list[int]
    output_tokens: list[int]
    chains: list[tuple[int, ...]]
    """Blocks of each prompt, numbered from 0 in order of appearance."""
    tenants: list[str]
    blocks: int
    """Number of distinct blocks."""
    block_tokens: int = BLOCK_TOKENS

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)

    @property
    def seconds(self) -> float:
        """Time from the first request to the last."""
        return float(self.times[-1])


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int | str] = []
    tenant: str = ""


def load(path: Path, *, block_tokens: int = BLOCK_TOKENS, limit: int | None = None) -> Trace:
    """Read a trace from a file.

    Args:
        path: of the file.
        block_tokens: tokens that each of its `hash_ids` stands for.
        limit: read so many requests only; None: all.

    Raises:
        TraceError: the file cannot be read, holds no request, or a line is wrong.
    """
    try:
        with path.open("rb") as lines:
            return parse(lines, name=str(path), block_tokens=block_tokens, limit=limit)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}.") from error


def parse(
    lines: Iterable[bytes],
    *,
    name: str = "trace",
    block_tokens: int = BLOCK_TOKENS,
    limit: int | None = None,
) -> Trace:
    """Read a trace from its lines; errors refer to it as `name`. Empty lines are skipped."""
    decoder = msgspec.json.Decoder(_Line)
    read: list[_Line] = []
    for number, line in enumerate(lines, 1):
        if limit is not None and len(read) >= limit:
            break
        if not line.strip():
            continue
        try:
            one = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise TraceError(f"{name}, line {number}: {error}.") from error
        _check(one, f"{name}, line {number}")
        read.append(one)
    if not read:
        raise TraceError(f"{name} holds no request.")
    return _number(sorted(read, key=lambda one: one.timestamp), block_tokens)


def _check(line: _Line, where: str) -> None:
    if not 0 <= line.timestamp < float("inf"):
        raise TraceError(f"{where}: timestamp {line.timestamp} is out of range: ms, at least 0.")
    if not 1 <= line.input_length <= MAX_TOKENS:
        raise TraceError(f"{where}: input_length {line.input_length} is out of range: at least 1.")
    if not 0 <= line.output_length <= MAX_TOKENS:
        raise TraceError(
            f"{where}: output_length {line.output_length} is out of range: at least 0."
        )


def _number(lines: list[_Line], block_tokens: int) -> Trace:
    numbers: dict[int | str, int] = {}
    milliseconds = np.array([line.timestamp for line in lines])
    return Trace(
        (milliseconds - milliseconds[0]) / 1e3,
        [line.input_length for line in lines],
        [line.output_length for line in lines],
        [tuple(numbers.setdefault(one, len(numbers)) for one in line.hash_ids) for line in lines],
        [line.tenant for line in lines],
        len(numbers),
        block_tokens,
    )
