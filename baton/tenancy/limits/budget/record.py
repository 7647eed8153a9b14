"""What is written down of a budget's month: what each frontend was charged, as JSON in etcd."""

import msgspec

MAX_BYTES = 1 << 20


class FrontendCharge(msgspec.Struct, array_like=True, gc=False):
    """What one frontend was charged, by its own word or by what it was granted since."""

    term: int
    """Of the frontend; of two charges the one of the higher is later."""
    charged: int
    settled: int
    """Of these: what ended requests cost. The rest is reserved, or was lost with the frontend."""
    at_seconds: int = 0
    """When it changed last, since the Unix epoch."""


class SpendRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The charges of one budget in one month. Only its owner writes it, by comparing it."""

    owner: str
    """Incarnation of the router that wrote it."""
    frontends: dict[str, FrontendCharge] = {}
    """By incarnation."""
    folded_charged: int = 0
    """Of frontends that are long gone, together."""
    folded_settled: int = 0
    alerts: tuple[str, ...] = ()
    """Ids of the alerts that were crossed, and told, this month."""

    @property
    def charged(self) -> int:
        """What cannot be granted any more."""
        return self.folded_charged + sum(one.charged for one in self.frontends.values())

    @property
    def settled(self) -> int:
        """What ended requests cost."""
        return self.folded_settled + sum(one.settled for one in self.frontends.values())


_decoder = msgspec.json.Decoder(SpendRecord)
encode = msgspec.json.encode
"""Returns a record as it is stored."""


def parse(value: bytes) -> SpendRecord:
    """Return a record as it was stored.

    Raises:
        ValueError: it is no such record.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record of spending: {error}") from None
