"""A case, and its possible outcomes."""

from dataclasses import dataclass

from tests.support.http2.frames import Code


@dataclass(frozen=True, slots=True)
class Closes:
    """A connection error: GOAWAY with the code, and the connection is closed."""

    code: Code


@dataclass(frozen=True, slots=True)
class Resets:
    """A stream error: RST_STREAM with the code; the connection continues."""

    code: Code
    stream_id: int = 1


@dataclass(frozen=True, slots=True)
class Answers:
    """The call on the stream ends with this gRPC status; the connection continues."""

    grpc_status: str = "0"
    stream_id: int = 1


@dataclass(frozen=True, slots=True)
class Ignores:
    """The frames have no effect; the connection continues."""


Outcome = Closes | Resets | Answers | Ignores
IGNORES = Ignores()
ANSWERS = Answers()


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes of a client, and the allowed outcomes."""

    section: str
    """The section of RFC 9113, or with the prefix `hpack ` of RFC 7541."""
    name: str
    sent: bytes
    outcomes: tuple[Outcome, ...]

    def __str__(self) -> str:
        return f"{self.section} {self.name}"


def case(section: str, name: str, sent: bytes, *outcomes: Outcome) -> Case:
    """Return a case, which needs at least one outcome."""
    assert outcomes
    return Case(section, name, sent, outcomes)


def closes(*codes: Code) -> tuple[Closes, ...]:
    return tuple(Closes(code) for code in codes)


def resets(*codes: Code, stream_id: int = 1) -> tuple[Resets, ...]:
    return tuple(Resets(code, stream_id) for code in codes)
