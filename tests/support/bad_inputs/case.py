"""Cases of bad input, read from tests/data/bad_inputs; its README.md describes the format."""

import json
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "bad_inputs"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One bad input."""

    file: str
    name: str
    expect: tuple[str, ...]
    """The allowed results: see README.md."""
    spec: dict[str, Any] = field(repr=False)
    """The whole line."""

    @property
    def kind(self) -> str:
        """How the case is sent: the first key of the line that names a way."""
        return next(key for key in self.spec if key in KINDS)

    @property
    def on_http(self) -> bool:
        """Whether the case is sent over HTTP."""
        return self.kind not in ("message", "frames") and "only_grpc" not in self.spec

    @property
    def on_grpc(self) -> bool:
        """Whether the case is sent over gRPC."""
        return self.kind in ("message", "frames") or "grpc" in self.spec

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


KINDS = ("chat", "text", "tokenize", "body", "raw", "message", "frames")


def load() -> list[Case]:
    """Return all cases, by file."""
    cases = []
    for path in sorted(DATA.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            spec = json.loads(line)
            expect = spec["expect"]
            expect = (expect,) if isinstance(expect, str) else tuple(expect)
            cases.append(Case(path.stem, spec["name"], expect, spec))
    return cases


def pieces(value: Any) -> bytes:
    """Return the bytes of a Latin-1 string, a list of such strings, or [string, repetitions]."""
    if isinstance(value, str):
        return value.encode("latin-1")
    if isinstance(value, dict):
        return b64decode(value["base64"])
    if len(value) == 2 and isinstance(value[1], int):
        return pieces(value[0]) * value[1]
    return b"".join(map(pieces, value))
