"""Prices: exact, whole nano-dollars; what cannot be exact is refused."""

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.request.prices import MAX_DOLLARS, Price, PriceTable, dollars, parse_dollars
from baton.settings import FrontendSettings, StartupError, load
from baton.settings.describe import text
from baton.settings.values import TIERS
from baton.tenancy.records.tenants import Tier

thousandths = st.integers(0, MAX_DOLLARS * 1000)
tokens = st.integers(0, 10**7)


def written(amount: int) -> str:
    """Dollars per million tokens of so many nano-dollars per token."""
    return f"{Decimal(amount) / 1000:f}"


@given(thousandths, thousandths, thousandths)
def test_what_is_written_in_dollars_per_million_is_read_exactly(a: int, b: int, c: int) -> None:
    price = Price.parse(f"{written(a)}/{written(b)}/{written(c)}")
    assert price == Price(a, b, c)
    assert Price.parse(str(price)) == price


@given(st.tuples(thousandths, thousandths, thousandths), tokens, tokens, tokens)
def test_a_cost_is_the_exact_sum_of_dollars(
    price: tuple[int, int, int], prompt: int, cached: int, output: int
) -> None:
    cached = min(prompt, cached)
    cost = Price(*price).cost(prompt, cached, output)
    per_million = [Fraction(amount, 1000) for amount in price]
    used = (prompt - cached, cached, output)
    exact = sum((p * t / 10**6 for p, t in zip(per_million, used, strict=True)), Fraction())
    assert Fraction(cost, 10**9) == exact
    assert Fraction(dollars(cost)) == exact
    assert isinstance(cost, int)
    assert cost < 2**63


@given(
    st.tuples(thousandths, thousandths, thousandths),
    st.lists(st.tuples(tokens, tokens), min_size=1, max_size=20),
)
def test_costs_of_requests_add_up_to_the_cost_of_their_tokens(
    price: tuple[int, int, int], requests: list[tuple[int, int]]
) -> None:
    one = Price(*price)
    parts = sum(one.cost(prompt, prompt // 3, output) for prompt, output in requests)
    whole = one.cost(
        sum(prompt for prompt, _ in requests),
        sum(prompt // 3 for prompt, _ in requests),
        sum(output for _, output in requests),
    )
    assert parts == whole


def test_without_a_price_of_their_own_cached_tokens_cost_what_others_do() -> None:
    assert Price.parse("0.15/0.6") == Price(150, 150, 600)


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ("0.0375/1", "37.5 nano-dollars per token, which must be a whole number"),
        ("1", "is not input/cached input/output"),
        ("1/2/3/4", "is not input/cached input/output"),
        ("-1/1", "'-1' is not an amount"),
        ("1e3/1", "'1e3' is not an amount"),
        ("nan/1", "'nan' is not an amount"),
        ("1//2", "'' is not an amount"),
        ("1000000.001/1", "exceed the limit of 1000000"),
        ("$1/$2", "'$1' is not an amount"),
    ],
)
def test_a_price_that_cannot_be_kept_exactly_is_refused(price: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("$", r"\$")):
        Price.parse(price)


def test_the_more_particular_price_wins() -> None:
    names = ("*", "m", "m@free", "m+batch", "m@pro+batch", "lora", "*@free+batch")
    prices = {name: Price(number, number, number) for number, name in enumerate(names)}
    table = PriceTable(prices)

    def found(model: str, adapter: str, tier: str, batch: bool) -> str:
        price = table.find(model, adapter, tier, batch=batch)
        assert price is not None
        return names[price.input]

    assert found("m", "", "enterprise", False) == "m"
    assert found("m", "", "free", False) == "m@free"
    assert found("m", "", "free", True) == "m+batch"
    assert found("m", "", "pro", True) == "m@pro+batch"
    assert found("m", "lora", "free", True) == "lora"
    assert found("m", "another", "free", False) == "m@free"
    assert found("x", "", "free", True) == "*@free+batch"
    assert found("x", "", "free", False) == "*"
    assert PriceTable({"m": Price(1, 1, 1)}).find("x", "", "free", batch=False) is None


def test_settings_take_prices_and_show_them_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = "org/m.v2=0.1/0.025/0.4,*@pro+batch=1/1/2"
    monkeypatch.setenv("BATON_USAGE_PRICES", wanted)
    prices = load(FrontendSettings).usage.prices
    assert prices == {"org/m.v2": Price(100, 25, 400), "*@pro+batch": Price(1000, 1000, 2000)}
    assert text(prices) == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("m", "'m' is not model=input"),
        ("m=0.0001/1", "at most three decimal places"),
        ("m=1/2,m=1/2", "'m' is set twice"),
        ("../m=1/2", "'../m' is not a model name"),
        ("m@gold=1/2", "'gold' is not a tier: free, pro, enterprise"),
        ("m+later=1/2", "is not model, model@tier, model[+]batch"),
    ],
)
def test_a_wrong_price_stops_the_process_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, words: str
) -> None:
    monkeypatch.setenv("BATON_USAGE_PRICES", value)
    with pytest.raises(StartupError, match=words) as raised:
        load(FrontendSettings)
    assert "usage.prices" in str(raised.value)
    assert "BATON_USAGE_PRICES" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "nanodollars"),
    [("50.00", 50 * 10**9), ("0.000000001", 1), ("0", 0), (" 7.5 ", 7_500_000_000)],
)
def test_dollars_are_read_exactly(text: str, nanodollars: int) -> None:
    assert parse_dollars(text) == nanodollars


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1,5", "0.0000000001", "nan", "1" * 13])
def test_what_is_no_amount_of_dollars_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dollars"):
        parse_dollars(text)


@pytest.mark.parametrize(("input_", "cached"), [(10, 3), (3, 10)])
def test_the_most_that_a_request_costs_holds_whatever_is_cached(input_: int, cached: int) -> None:
    price = Price(input_, cached, 7)
    assert price.most(20, 5) == max(price.cost(20, found, 5) for found in range(21))


def test_the_tiers_of_prices_are_those_of_tenants() -> None:
    assert tuple(Tier) == TIERS


def test_what_the_documents_show_is_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/usage.md").read_text()
    shown = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "baton.toml").write_text("\n".join(shown))
    usage = load(FrontendSettings, [f"--config={tmp_path / 'baton.toml'}"], "frontend").usage
    assert usage.prices["*@enterprise"] == Price(80, 80, 320)
    assert usage.kafka.options == {"compression.type": "zstd"}
    assert usage.provider_prices
