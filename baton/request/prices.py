"""Prices of tokens in whole nano-dollars, and what requests cost at them. Pure.

A nano-dollar is a billionth of a dollar. People write dollars per million tokens: one dollar per
million is 1,000 nano-dollars per token, so that three decimal places are exact. What has more is
refused, not rounded: a cost is a sum of whole numbers and the same wherever it is added up.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

ANY_MODEL = "*"
MAX_DOLLARS = 1_000_000
"""Per million tokens: a dollar per token. A request's cost fits into 64 bits."""
NANODOLLARS = 10**9
"""Of a dollar."""

_NANODOLLARS_PER_DOLLAR = 1000
"""Per token, of one dollar per million tokens."""
_AMOUNT = re.compile(r"[0-9]{1,7}(\.[0-9]{1,12})?")
_DOLLARS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_NAME = re.compile(r"(?P<model>[^@+]+)(@(?P<tier>[a-z]+))?(?P<batch>\+batch)?")
_MAX_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class Price:
    """What tokens cost, in nano-dollars per token."""

    input: int
    cached_input: int
    """Of prompt tokens whose KV was found instead of computed."""
    output: int

    @classmethod
    def parse(cls, text: str) -> "Price":
        """Return the price in a text such as `0.10/0.025/0.40`, in dollars per million tokens.

        Args:
            text: `input/cached input/output`, or `input/output` where cached tokens cost the same.

        Raises:
            ValueError: it is no such text, or not whole nano-dollars per token.
        """
        parts = [_nanodollars(part) for part in text.split("/")]
        if len(parts) == 2:
            parts.insert(1, parts[0])
        if len(parts) != 3:
            raise ValueError(f"{text!r} is not input/cached input/output or input/output")
        return cls(*parts)

    def __str__(self) -> str:
        parts = (self.input, self.cached_input, self.output)
        return "/".join(f"{Decimal(part) / _NANODOLLARS_PER_DOLLAR:f}" for part in parts)

    def cost(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        """Return what a request costs, in nano-dollars; the cached tokens are of the prompt."""
        computed = prompt_tokens - cached_tokens
        return (
            computed * self.input + cached_tokens * self.cached_input + output_tokens * self.output
        )

    def most(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return the most that a request may cost, whatever of its prompt is cached."""
        dearer = max(self.input, self.cached_input)
        return prompt_tokens * dearer + output_tokens * self.output


class PriceTable:
    """Finds prices of requests. Prices do not change while it lives.

    Args:
        prices: by `model`, `model@tier`, `model+batch` or `model@tier+batch`; `*` is any model.
    """

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = {parse_name(name): price for name, price in prices.items()}
        self._found: dict[tuple[str, str, str, bool, Price | None], Price | None] = {}

    def find(
        self, model: str, adapter: str, tier: str, *, batch: bool, own: Price | None = None
    ) -> Price | None:
        """Return the price of a request; None: there is none.

        A name decides before everything else: the adapter's, the model's, `*`. Then, of a batch
        request, what is for batch; then what is for the tier. A price of the model's `own`, which
        its provider has, comes before that of `*`.
        """
        asked = (model, adapter, tier, batch, own)
        try:
            return self._found[asked]
        except KeyError:
            if len(self._found) >= _MAX_KNOWN:
                self._found.clear()
            price = self._found[asked] = self._find(*asked)
            return price

    def _find(
        self, model: str, adapter: str, tier: str, batch: bool, own: Price | None
    ) -> Price | None:
        for name in filter(None, (adapter, model, ANY_MODEL)):
            if name == ANY_MODEL and own is not None:
                return own
            for as_batch in (True, False) if batch else (False,):
                for of_tier in (tier, ""):
                    price = self._prices.get((name, of_tier, as_batch))
                    if price is not None:
                        return price
        return None


def parse_name(name: str) -> tuple[str, str, bool]:
    """Return model, tier and whether it is for batch; an empty tier is any.

    Raises:
        ValueError: it is no such name.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not model, model@tier, model+batch or model@tier+batch")
    return found["model"], found["tier"] or "", found["batch"] is not None


def dollars(nanodollars: int) -> str:
    """Return an amount in dollars, exactly, with two decimal places at least."""
    whole, rest = divmod(abs(nanodollars), NANODOLLARS)
    decimals = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanodollars < 0 else ''}{whole}.{decimals}"


def parse_dollars(text: str) -> int:
    """Return an amount of dollars such as `50.00` in nano-dollars.

    Raises:
        ValueError: it is no such amount, or has more than nine decimal places.
    """
    if not _DOLLARS.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not an amount of dollars, for example 50.00")
    nanodollars = Decimal(text.strip()) * NANODOLLARS
    if nanodollars != int(nanodollars):
        raise ValueError(f"{text} dollars has more than nine decimal places")
    return int(nanodollars)


def _nanodollars(text: str) -> int:
    text = text.strip()
    if not _AMOUNT.fullmatch(text):
        raise ValueError(f"{text!r} is not an amount, for example 0.15")
    amount = Decimal(text)
    if amount > MAX_DOLLARS:
        raise ValueError(f"{text} dollars per million tokens exceed the limit of {MAX_DOLLARS}")
    nanodollars = amount * _NANODOLLARS_PER_DOLLAR
    if nanodollars != int(nanodollars):
        raise ValueError(
            f"{text} dollars per million tokens are {nanodollars.normalize():f} nano-dollars per "
            "token, which must be a whole number: use at most three decimal places"
        )
    return int(nanodollars)
