"""Groups of the frontend."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.host.networks import PUBLIC
from baton.request.limits import MAX_CHOICES, MAX_PICTURE_PIXELS
from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, Locations, Networks, Origins, Port


class HttpSettings(SettingsGroup):
    """The frontend's HTTP server."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(8000, description="port to listen on; 0 takes a free one")
    reuse_port: bool = Field(
        False, description="share the port with other processes that also set this"
    )
    cors_origins: Origins = Field(
        (),
        description="web origins whose scripts may read responses, such as "
        "https://chat.example.org, separated by commas; *: all; empty: none",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="unknown fields in a completion request: refuse returns an error that names "
        "the field, as OpenAI does; ignore ignores it, as vLLM does",
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum open connections; the server rejects further ones",
    )
    max_body_bytes: Bytes = Field(
        4 * MIB, ge=1024, le=1024 * MIB, description="maximum size of a request body"
    )
    header_timeout_seconds: float = Field(
        10, gt=0, le=600, description="time for a client to send a request's head"
    )
    body_timeout_seconds: float = Field(
        30, gt=0, le=3600, description="time for a client to send a request's body"
    )
    idle_timeout_seconds: int = Field(
        75, ge=1, le=86400, description="a connection without a request is closed after this long"
    )
    keep_alive_seconds: float = Field(
        15, gt=0, le=3600, description="a stream without an event sends a comment after this long"
    )
    max_head_bytes: Bytes = Field(
        64 * 1024, ge=1024, le=16 * MIB, description="maximum size of a request's head"
    )
    max_head_fields: int = Field(
        256,
        ge=16,
        le=65_536,
        description="maximum header fields of a request, and trailers of a chunked body",
    )
    close_seconds: int = Field(1, ge=0, le=600, description="time for responses to end at shutdown")


class PublicSettings(SettingsGroup):
    """The frontend's public ports, HTTP and gRPC."""

    tls_cert: Path | None = Field(
        None,
        description="file with the certificate chain that clients see, in PEM; none: plain text",
    )
    tls_key: Path | None = Field(
        None,
        description="file with the private key of that certificate, in PEM, without a password",
    )
    metrics: bool = Field(
        False, description="serve /metrics on the HTTP port in addition to the ops port"
    )
    max_connections_per_address: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="maximum open connections per client address, HTTP and gRPC together (IPv6: "
        "per /64); further ones are rejected; 0: no limit. Clients behind a proxy share its "
        "address",
    )
    max_unfinished_bytes: Bytes = Field(
        1024 * MIB,
        ge=0,
        le=1024 * 1024 * MIB,
        description="maximum size of all partly received bodies and messages, HTTP and gRPC "
        "together; above it the oldest are rejected; 0: no limit",
    )


class AuthSettings(SettingsGroup):
    """Authentication of clients."""

    mode: Literal["off", "keys"] = Field(
        "off",
        description="off: all clients are the tenant `default`; keys: requests need an API key, "
        "which determines tenant, project and tier",
    )


class FrontendLimits(SettingsGroup):
    """Limits of clients' requests, and timeouts."""

    max_requests: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum concurrent requests; further ones are rejected with OVERLOADED",
    )
    wait_for_worker_seconds: float = Field(
        30,
        ge=0,
        le=3600,
        description="longest time that a request waits while no worker is available",
    )
    max_waiting: int = Field(
        8192,
        ge=0,
        le=1_000_000,
        description="maximum requests that wait for a worker; further ones are rejected",
    )
    max_waiting_bytes: Bytes = Field(
        256 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="approximate maximum memory of these requests",
    )
    max_session_requests: int = Field(
        256, ge=1, le=65_536, description="maximum open requests on one Session"
    )
    default_deadline_seconds: float = Field(
        600, gt=0, le=604_800, description="deadline of a request that sets none"
    )
    max_deadline_seconds: float = Field(
        86_400, gt=0, le=604_800, description="maximum deadline; longer ones are reduced to it"
    )
    max_body_values: int = Field(
        262_144,
        ge=1024,
        le=16_777_216,
        description="maximum values in a JSON body; each token id of a prompt is one",
    )
    max_message_fields: int = Field(
        20_480,
        ge=1024,
        le=16_777_216,
        description="maximum fields in a gRPC message; all token ids of a prompt together are one",
    )
    max_messages: int = Field(
        4096, ge=1, le=1_000_000, description="maximum messages in a conversation"
    )
    max_pictures: int = Field(
        8, ge=0, le=1024, description="maximum pictures in a conversation; 0: none are accepted"
    )
    max_picture_bytes: Bytes = Field(
        3 * MIB,
        ge=1024,
        le=3 * MIB,
        description="maximum size of all pictures of a conversation, decoded from base64",
    )
    max_picture_pixels: int = Field(
        MAX_PICTURE_PIXELS,
        ge=1,
        le=MAX_PICTURE_PIXELS,
        description="maximum pixels of a picture, by its header",
    )
    max_choices: int = Field(
        MAX_CHOICES, ge=1, le=MAX_CHOICES, description="maximum choices per prompt (n)"
    )
    max_outputs: int = Field(
        128, ge=1, le=4096, description="maximum outputs of a text completion: prompts times n"
    )
    max_tokenizing: int = Field(
        64,
        ge=1,
        le=65_536,
        description="maximum long prompts that wait for tokenization; further ones are rejected",
    )
    stall_seconds: float = Field(
        30, gt=0, le=3600, description="a client that reads nothing for this long is disconnected"
    )
    drain_notice_seconds: float = Field(
        5,
        ge=0,
        le=600,
        description="time after SIGTERM in which requests are still admitted, until load "
        "balancers notice; at most half of drain_seconds",
    )
    max_connection_age_seconds: float = Field(
        3600,
        ge=0,
        le=604_800,
        description="age, ±10 %, at which clients are asked to open a new connection; 0: never",
    )
    max_connection_grace_seconds: float = Field(
        86_400,
        ge=0,
        le=604_800,
        description="time after that until gRPC calls that are still open are cut",
    )
    buffer_bytes: Bytes = Field(
        192 * 1024,
        ge=16 * 1024,
        le=1024 * MIB,
        description="output buffered for a slow client: from a quarter of it, the request's "
        "streams pause at their workers; above it, the request ends",
    )


class TextSettings(SettingsGroup):
    """Parsing of text, and limits of JSON output."""

    special_tokens: Literal["none", "prompts", "all"] = Field(
        "prompts",
        description="inputs in which `<|im_end|>` and the like are special tokens: none; prompts "
        "of text completions, as in vLLM; or messages as well (all). Elsewhere they are plain text",
    )
    tool_format: Literal[
        "auto", "none", "hermes", "qwen3_coder", "llama3", "mistral", "mistral_args"
    ] = Field(
        "auto",
        description="format in which models write tool calls; auto: detected from the chat "
        "template",
    )
    reasoning_format: Literal["auto", "none", "think"] = Field(
        "auto",
        description="whether models reason between `<think>` and `</think>` before they respond; "
        "auto: if the chat template has these tags",
    )
    json_max_digits: int = Field(
        40,
        ge=0,
        le=10_000,
        description="maximum consecutive digits of a number in JSON output, unless its schema "
        "sets limits that need more; 128-bit integers have 39; 0: no limit",
    )
    json_max_levels: int = Field(
        24,
        ge=0,
        le=64,
        description="maximum nesting of arrays and objects in JSON output where the schema allows "
        "any value or refers to itself; 0: no limit",
    )


class FrontendPlacement(SettingsGroup):
    """How the frontend uses routers to place requests."""

    max_attempts: int = Field(
        8,
        ge=1,
        le=100,
        description="maximum placements of a request without a token between them, the first "
        "included",
    )
    answer_seconds: float = Field(
        2,
        gt=0,
        le=60,
        description="time for a router to respond; then the frontend places the request at random",
    )
    suspect_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="time without a response after which the router is probed and another router, "
        "if there is one, is asked",
    )
    silence_seconds: float = Field(
        1,
        ge=0.5,
        le=60,
        description="time without a message about queued requests after which the router is "
        "probed and another router, if there is one, is asked; routers send one every 0.25 s",
    )
    write_seconds: float = Field(
        5, gt=0, le=600, description="time for a router to accept a message"
    )
    max_pending: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum requests that wait for one router's response or in its queue; "
        "further ones are rejected",
    )


class WorkerConnectionSettings(SettingsGroup):
    """The frontend's connections to workers."""

    write_seconds: float = Field(
        5, gt=0, le=600, description="time for a worker to accept a message"
    )
    max_queued: int = Field(
        4096,
        ge=64,
        le=1_000_000,
        description="maximum messages queued for a worker; with more, the worker counts as lost",
    )
    tokenizer_seconds: float = Field(
        60, gt=0, le=3600, description="time for a worker to send a model's tokenizer"
    )
    tokenizer_silence_seconds: float = Field(
        3,
        gt=0,
        le=600,
        description="time without data of a tokenizer after which the frontend asks another worker",
    )
    report_seconds: float = Field(
        2,
        gt=0,
        le=60,
        description="time to wait for the workers' usage reports after the last token",
    )


class ProviderSettings(SettingsGroup):
    """Upstreams of providers' models."""

    allowed_networks: Networks = Field(
        (PUBLIC,),
        description="networks that upstreams may be in, checked at each connect; public: all "
        "public addresses; http:// is possible in the other ones",
    )


class AdapterSettings(SettingsGroup):
    """Adapters that administrators load over HTTP."""

    allowed_locations: Locations = Field(
        (),
        description="directories and URLs (`s3://bucket/adapters`) below which `lora_path` of "
        "`/v1/load_lora_adapter` may be; empty: adapters can be added by `baton adapters` only",
    )


class KeepSettings(SettingsGroup):
    """Ended requests that routers keep, where their history.path is set."""

    sample_ratio: float = Field(
        0.01,
        ge=0,
        le=1,
        description="share of the requests to keep that neither failed nor were slow",
    )


class AutoSettings(SettingsGroup):
    """Requests for the model `auto`."""

    classifier: str = Field(
        "",
        pattern=r"^([A-Za-z_][\w.]*:[A-Za-z_]\w*)?$",
        description="function that labels requests for rules with `labels`, as "
        "package.module:function; called on a thread, with a deadline of 5 ms; empty: none",
    )


class TeamSettings(SettingsGroup):
    """Metrics per team: a tenant's project."""

    top: int = Field(
        0,
        ge=0,
        le=200,
        description="number of teams, those that use most tokens, with series of their own in the "
        "metrics baton_team_*; the others are counted together; 0: there are no such metrics",
    )
