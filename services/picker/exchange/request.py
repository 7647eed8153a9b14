"""What a picker reads of a request: its headers, its model, and which endpoints it may use."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from baton.internal.envoy import base_pb2, external_processor_pb2

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
SERVED_NAMESPACE = "envoy.lb"
SERVED_KEY = "x-gateway-destination-endpoint-served"
OBJECTIVE_HEADER = "x-gateway-inference-objective"


class PickRequest(NamedTuple):
    """A request that needs an endpoint."""

    model: str = ""
    """The model that it names; empty: none, or unknown."""
    objective: str = ""
    """Name of its inference objective; empty: none."""
    subset: frozenset[str] | None = None
    """The endpoints to choose among, `host:port` or `host`; None: all."""


class _Body(msgspec.Struct):
    model: str = ""


_DECODER = msgspec.json.Decoder(_Body)


def model_of(body: Sequence[bytes]) -> str:
    """Return the model that a JSON body names; empty: none, which the frontend reports."""
    try:
        return _DECODER.decode(b"".join(body)).model
    except msgspec.DecodeError:  # a model that is not a text, too
        return ""


def headers_of(message: external_processor_pb2.HttpHeaders) -> Mapping[str, str]:
    """Return headers by name; of several with one name, the last."""
    return {one.key: _value(one) for one in message.headers.headers}


def subset_of(metadata: base_pb2.Metadata) -> frozenset[str] | None:
    """Return the endpoints that a gateway restricts a request to; None: it does not.

    They are a list, or one text with commas, as Envoy's filters set it from a header.
    """
    namespace = metadata.filter_metadata
    if SUBSET_NAMESPACE not in namespace or SUBSET_KEY not in namespace[SUBSET_NAMESPACE].fields:
        return None
    value = namespace[SUBSET_NAMESPACE].fields[SUBSET_KEY]
    texts = [value.string_value, *(one.string_value for one in value.list_value.values)]
    names = (name.strip() for text in texts for name in text.split(","))
    return frozenset(name for name in names if name)


def served_by(metadata: base_pb2.Metadata) -> str:
    """Return the endpoint that served a response, by its gateway; empty: it does not say."""
    if SERVED_NAMESPACE not in metadata.filter_metadata:
        return ""
    fields = metadata.filter_metadata[SERVED_NAMESPACE].fields
    return fields[SERVED_KEY].string_value if SERVED_KEY in fields else ""


def _value(header: base_pb2.HeaderValue) -> str:
    return header.raw_value.decode("latin-1") if header.raw_value else header.value
