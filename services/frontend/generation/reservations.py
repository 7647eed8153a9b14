"""The parts of keys' limits that requests hold, from before they run until they end."""

from baton.request.prices import Price
from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.limit_set import LimitReservation
from services.frontend.access.key_limits import KeyLimits
from services.frontend.access.request_limits import RequestLimits
from services.frontend.generation.accounting.costs import worst_case
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest


class RequestReservations:
    """Reserves and settles requests' parts of limits. Runs on the event loop.

    Args:
        limits: limits of keys, projects and tenants; None: there are no keys, and nothing is
            limited.
    """

    def __init__(self, limits: RequestLimits | None) -> None:
        self._limits = limits

    def limits_of(self, record: RequestRecord) -> KeyLimits | None:
        """Return the limits of the caller, and record them for the response's headers.

        Returns:
            The limits; None: there are no keys, and no limits.
        """
        if self._limits is None:
            return None
        limits = self._limits.of(record.principal)
        record.limits = limits.counted
        return limits

    def context_of(self, who: Principal) -> RequestContextLimit | None:
        """Return a caller's limit of the tokens of a request; None: there are no keys."""
        return None if self._limits is None else self._limits.of(who).context

    async def reserve(
        self, allowed: KeyLimits | None, request: ResolvedRequest, price: Price | None, count: int
    ) -> LimitReservation | None:
        """Reserve the most that a request may use; None: it has no limits.

        Args:
            allowed: the result of `limits_of`.
            request: the request that is about to run.
            price: the price of its tokens; None if it has none.
            count: how many requests it counts as.

        Raises:
            BatonError: as for `RequestLimits.reserve` and `worst_case`.
        """
        if allowed is None or allowed.counted is None or self._limits is None:
            return None
        cost = worst_case(request, price, allowed.counted)
        return await self._limits.reserve(allowed.counted, request.most_tokens, cost, count)

    def settle(self, reservation: LimitReservation | None, used: int, cost: int = 0) -> None:
        """Settle a reservation with the tokens and nano-dollars used; None: there is none."""
        if reservation is not None and self._limits is not None:
            self._limits.settle(reservation, used, cost)

    def return_requests(self, record: RequestRecord, reservation: LimitReservation | None) -> None:
        """Return the requests of a reservation if none of them was started."""
        if reservation is not None and self._limits is not None and record.limits:
            self._limits.return_requests(record.limits, reservation)
