"""Records of providers: what is valid."""

from typing import Any

import pytest

from baton.tenancy.records.providers import (
    Provider,
    ProviderModel,
    check_provider,
    check_provider_with_others,
)


def model(**fields: Any) -> ProviderModel:
    given: dict[str, Any] = {"name": "gpt", "context_tokens": 100, "output_tokens": 10}
    return ProviderModel(**(given | fields))


def provider(**fields: Any) -> Provider:
    given = {"id": "acme", "url": "https://api.example.org/v1", "models": (model(),)}
    return Provider(**(given | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"url": "http://10.0.0.1:8000/v1", "http": True},
        {"keys": ("file:/etc/key", "env:OPENAI_API_KEY")},
        {"quirks": ("max_tokens", "drop:top_k", "takes:min_p")},
        {"models": (), "url": ""},
    ],
)
def test_valid(fields: dict[str, Any]) -> None:
    check_provider(provider(**fields))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id": "a b"}, "provider: 'a b' is not a name"),
        ({"id": "a\n"}, "provider: "),
        ({"api": "soap"}, "api: 'soap' is not openai or anthropic"),
        ({"url": "ftp://x"}, "url: must be https://"),
        ({"url": "https://x:99999999/"}, "url: must be https://"),
        ({"url": "https://x/\r\nhost: y"}, "url: must be https://"),
        ({"url": "https://user:pw@x"}, "url: cannot have a user"),
        ({"url": "http://x"}, "url: http:// sends prompts and keys unencrypted"),
        ({"keys": ("sk-secret",)}, "keys: a reference is file:/PATH or env:NAME"),
        ({"keys": ("env:BATON_STATE_URL",)}, "keys: a reference is"),
        ({"keys": ("env:A_KEY",) * 9}, "keys: 9 entries exceed the limit of 8"),
        ({"quirks": ("odd",)}, "quirks: 'odd' is not one of"),
        ({"token_seconds": 0.0}, "token_seconds: must be above 0"),
        ({"first_token_seconds": float("nan")}, "first_token_seconds: must be above 0"),
        ({"connections": 0}, "connections: must be 1 to"),
        ({"models": (model(name="a\tb"),)}, "models: 'a\\tb' is not the name of a model"),
        ({"models": (model(upstream="a b"),)}, "models: the upstream's name of gpt"),
        ({"models": (model(context_tokens=1),)}, "models: context of gpt"),
        ({"models": (model(output_tokens=100),)}, "models: output of gpt"),
        ({"models": (model(price="free"),)}, "models: price of gpt"),
        ({"models": (model(), model())}, "models: each name can be used once"),
    ],
)
def test_invalid(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_provider(provider(**fields))
    assert str(caught.value).startswith(sentence)
    assert "sk-secret" not in str(caught.value)


def test_two_providers_cannot_have_models_of_one_name() -> None:
    check_provider_with_others(provider(), [provider(), provider(id="other", models=())])
    with pytest.raises(ValueError, match="models: gpt is a model of the provider other"):
        check_provider_with_others(provider(), [provider(id="other")])


def test_a_hedge_is_a_model_of_another_provider_that_is_as_large() -> None:
    hedged = provider(models=(model(name="mine", hedge="gpt"),))
    check_provider_with_others(hedged, [provider(id="other")])
    with pytest.raises(ValueError, match="hedge of mine: 'gpt' is no model of another provider"):
        check_provider_with_others(hedged, [provider(id="other", models=(model(name="x"),))])
    with pytest.raises(ValueError, match="hedge of mine: gpt has a smaller context or output"):
        check_provider_with_others(
            hedged, [provider(id="other", models=(model(context_tokens=50),))]
        )
