"""The stored record of a budget's month: the charge of each frontend, as JSON in etcd."""

import msgspec

MAX_BYTES = 1 << 20


class FrontendCharge(msgspec.Struct, array_like=True, gc=False):
    """The charge of one frontend, as it reported and with later grants."""

    term: int
    """Term of the frontend; of two charges the one with the higher term is later."""
    charged: int
    settled: int
    """Part of the charge that ended requests cost. The rest is reserved, or was lost with the
    frontend."""
    at_seconds: int = 0
    """When it changed last, in seconds since the Unix epoch."""


class SpendRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The charges of one budget in one month. Only its owner writes it, with compare-and-swap."""

    owner: str
    """Incarnation of the router that wrote it."""
    frontends: dict[str, FrontendCharge] = {}
    """By incarnation."""
    folded_charged: int = 0
    """Charges of frontends that have long been gone, together."""
    folded_settled: int = 0
    alerts: tuple[str, ...] = ()
    """IDs of the alerts that were crossed, and reported, this month."""

    @property
    def charged(self) -> int:
        """Units that cannot be granted any more."""
        return self.folded_charged + sum(one.charged for one in self.frontends.values())

    @property
    def settled(self) -> int:
        """Cost of ended requests."""
        return self.folded_settled + sum(one.settled for one in self.frontends.values())


_decoder = msgspec.json.Decoder(SpendRecord)
encode = msgspec.json.encode
"""Returns a record in its stored form."""


def parse(value: bytes) -> SpendRecord:
    """Return the record in a stored value.

    Raises:
        ValueError: it is not such a record.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record of spending: {error}") from None
