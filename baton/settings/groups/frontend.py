"""Groups of the frontend."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.request.limits import MAX_CHOICES
from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, Origins, Port


class HttpSettings(SettingsGroup):
    """The frontend's HTTP server."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(8000, description="port to listen on; 0 takes a free one")
    reuse_port: bool = Field(
        False, description="share the port with processes that are set to share it too"
    )
    cors_origins: Origins = Field(
        (),
        description="web pages whose scripts may read answers, such as https://chat.example.org, "
        "separated by commas; *: all of them; empty: none",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="what becomes of fields of a completion that no documentation has: refused by "
        "name, as OpenAI does, or ignored, as vLLM does",
    )
    max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="connections at once; more are refused"
    )
    max_body_bytes: Bytes = Field(
        4 * MIB, ge=1024, le=1024 * MIB, description="longest request body"
    )
    header_timeout_seconds: float = Field(
        10, gt=0, le=600, description="time for a client to send a request's head"
    )
    body_timeout_seconds: float = Field(
        30, gt=0, le=3600, description="time for a client to send a request's body"
    )
    idle_timeout_seconds: int = Field(
        75, ge=1, le=86400, description="a connection without a request is closed after so long"
    )
    keep_alive_seconds: float = Field(
        15, gt=0, le=3600, description="a stream without an event gets a comment after so long"
    )
    max_head_bytes: Bytes = Field(
        64 * 1024, ge=1024, le=16 * MIB, description="longest head of a request"
    )
    max_head_fields: int = Field(
        256, ge=16, le=65_536, description="header fields of a request; also behind a chunked body"
    )
    close_seconds: int = Field(
        1, ge=0, le=600, description="time for answers to end when the server stops"
    )


class PublicSettings(SettingsGroup):
    """What the frontend shows clients on its public ports, HTTP and gRPC."""

    tls_cert: Path | None = Field(
        None,
        description="file with the certificate chain that clients see, in PEM; none: plain text is "
        "served",
    )
    tls_key: Path | None = Field(
        None, description="file with that certificate's private key, in PEM, without a password"
    )
    metrics: bool = Field(
        False, description="show /metrics on the HTTP port too; it is on the ops port in any case"
    )
    max_connections_per_address: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="connections of one client address at once, HTTP and gRPC together (IPv6: of "
        "one /64); more are refused; 0: any number. Clients behind a proxy have its address",
    )
    max_unfinished_bytes: Bytes = Field(
        1024 * MIB,
        ge=0,
        le=1024 * 1024 * MIB,
        description="of bodies and messages that have begun to come and are not whole, of all "
        "clients, HTTP and gRPC together; of more, the oldest are refused; 0: any number",
    )


class AuthSettings(SettingsGroup):
    """Who clients are."""

    mode: Literal["off", "keys"] = Field(
        "off",
        description="off: everybody is the tenant `default`; keys: requests need an API key, and "
        "tenant, project and tier are the key's",
    )


class FrontendLimits(SettingsGroup):
    """What clients may ask for, and how long they may take."""

    max_requests: int = Field(
        10_000, ge=1, le=1_000_000, description="requests at once; more are refused as OVERLOADED"
    )
    wait_for_worker_seconds: float = Field(
        30,
        ge=0,
        le=3600,
        description="longest time for a request to wait while no worker can take it",
    )
    max_waiting: int = Field(
        8192, ge=0, le=1_000_000, description="requests that wait for a worker; more are refused"
    )
    max_waiting_bytes: Bytes = Field(
        256 * MIB, ge=MIB, le=1024 * 1024 * MIB, description="what these may hold in memory, about"
    )
    max_session_requests: int = Field(
        256, ge=1, le=65_536, description="requests of one Session that are open at once"
    )
    default_deadline_seconds: float = Field(
        600, gt=0, le=604_800, description="deadline of a request that has none"
    )
    max_deadline_seconds: float = Field(
        86_400, gt=0, le=604_800, description="longest deadline; a longer one becomes this"
    )
    max_body_values: int = Field(
        262_144,
        ge=1024,
        le=16_777_216,
        description="values of a JSON body; every token id of a prompt is one",
    )
    max_message_fields: int = Field(
        20_480,
        ge=1024,
        le=16_777_216,
        description="fields of a gRPC message; all token ids of a prompt are one",
    )
    max_messages: int = Field(4096, ge=1, le=1_000_000, description="messages of one conversation")
    max_choices: int = Field(
        MAX_CHOICES, ge=1, le=MAX_CHOICES, description="answers to one prompt (n)"
    )
    max_outputs: int = Field(
        128, ge=1, le=4096, description="prompts of one text completion times n"
    )
    max_tokenizing: int = Field(
        64, ge=1, le=65_536, description="long prompts that wait to be tokenized; more are refused"
    )
    stall_seconds: float = Field(
        30, gt=0, le=3600, description="a client that reads nothing for so long is cut off"
    )
    drain_notice_seconds: float = Field(
        5,
        ge=0,
        le=600,
        description="after SIGTERM requests are still taken for so long, until load balancers have "
        "noticed; at most half of drain_seconds",
    )
    max_connection_age_seconds: float = Field(
        3600,
        ge=0,
        le=604_800,
        description="clients are told to use a new connection after so long, 10 % more or less; "
        "0: never",
    )
    max_connection_grace_seconds: float = Field(
        86_400,
        ge=0,
        le=604_800,
        description="gRPC calls that are open so long after that are cut",
    )
    buffer_bytes: Bytes = Field(
        192 * 1024,
        ge=16 * 1024,
        le=1024 * MIB,
        description="output that waits for a client that reads slowly: from a quarter on its "
        "streams wait at their workers, and with more than this its request ends",
    )


class TextSettings(SettingsGroup):
    """How texts of clients are read, and what bounds answers in JSON."""

    special_tokens: Literal["none", "prompts", "all"] = Field(
        "prompts",
        description="texts in which `<|im_end|>` and the like become special tokens: prompts of "
        "text completions, as vLLM reads them, or messages too; elsewhere they are text",
    )
    tool_format: Literal[
        "auto", "none", "hermes", "qwen3_coder", "llama3", "mistral", "mistral_args"
    ] = Field(
        "auto",
        description="how models write calls of tools; auto: as their chat templates show",
    )
    reasoning_format: Literal["auto", "none", "think"] = Field(
        "auto",
        description="whether models think between `<think>` and `</think>` before they answer; "
        "auto: where their chat templates have these tags",
    )
    json_max_digits: int = Field(
        40,
        ge=0,
        le=10_000,
        description="digits in a row of a number in JSON that is asked for, where its schema sets "
        "no limits that need more: 128-bit integers have 39; 0: any",
    )
    json_max_levels: int = Field(
        24,
        ge=0,
        le=64,
        description="levels of arrays and objects of JSON that is asked for, where its schema "
        "allows any value or refers to itself; 0: any",
    )


class FrontendPlacement(SettingsGroup):
    """How requests get workers."""

    max_attempts: int = Field(
        8,
        ge=1,
        le=100,
        description="placements of one request without a token between them, the first included",
    )
    answer_seconds: float = Field(
        2,
        gt=0,
        le=60,
        description="time for a router to answer; then the request is placed at random",
    )
    suspect_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="a router that has not answered for so long is probed, and another one is "
        "asked where there is one",
    )
    silence_seconds: float = Field(
        1,
        ge=0.5,
        le=60,
        description="a router that lets requests wait and says nothing for so long is probed, and "
        "another one is asked where there is one; routers say something every 0.25 s",
    )
    write_seconds: float = Field(5, gt=0, le=600, description="time for a router to take a message")
    max_pending: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="requests that wait for one router's answer or in its queue; more are refused",
    )


class WorkerConnectionSettings(SettingsGroup):
    """The frontend's connections to workers."""

    write_seconds: float = Field(5, gt=0, le=600, description="time for a worker to take a message")
    max_queued: int = Field(
        4096,
        ge=64,
        le=1_000_000,
        description="messages that wait for a worker; with more it counts as lost",
    )
    tokenizer_seconds: float = Field(
        60, gt=0, le=3600, description="time for a worker to send a model's tokenizer"
    )
    tokenizer_silence_seconds: float = Field(
        3,
        gt=0,
        le=600,
        description="a worker that sends nothing of it for so long is given up; "
        "another one is asked",
    )
    report_seconds: float = Field(
        2, gt=0, le=60, description="wait for the workers' reports of usage after the last token"
    )
