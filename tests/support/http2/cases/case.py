"""One case, and the outcomes that it may have."""

from dataclasses import dataclass

from tests.support.http2.frames import Code


@dataclass(frozen=True, slots=True)
class Closes:
    """A connection error: GOAWAY with the code, and the connection is closed."""

    code: Code


@dataclass(frozen=True, slots=True)
class Resets:
    """A stream error: RST_STREAM with the code; the connection goes on."""

    code: Code
    stream_id: int = 1


@dataclass(frozen=True, slots=True)
class Answers:
    """The call on the stream ends with this gRPC status; the connection goes on."""

    grpc_status: str = "0"
    stream_id: int = 1


@dataclass(frozen=True, slots=True)
class Ignores:
    """Nothing comes of it; the connection goes on."""


Outcome = Closes | Resets | Answers | Ignores
IGNORES = Ignores()
ANSWERS = Answers()


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes of a client, and what may come of them."""

    section: str
    """Of RFC 9113, or of RFC 7541 with the prefix `hpack `."""
    name: str
    sent: bytes
    outcomes: tuple[Outcome, ...]

    def __str__(self) -> str:
        return f"{self.section} {self.name}"


def case(section: str, name: str, sent: bytes, *outcomes: Outcome) -> Case:
    """Return a case; it needs an outcome at least."""
    assert outcomes
    return Case(section, name, sent, outcomes)


def closes(*codes: Code) -> tuple[Closes, ...]:
    return tuple(Closes(code) for code in codes)


def resets(*codes: Code, stream_id: int = 1) -> tuple[Resets, ...]:
    return tuple(Resets(code, stream_id) for code in codes)
