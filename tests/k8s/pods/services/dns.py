"""The cluster's DNS: names of Services, and of pods behind Services without an address."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

TTL_SECONDS = 5
PORT = 53
Resolve = Callable[[str], Sequence[str] | None]
"""Returns the addresses of a name without its final dot; None: there is no such name."""


def answer(query: bytes, resolve: Resolve) -> bytes:
    """Return the answer to a query: addresses of version 4, or that there is no such name.

    Raises:
        dns.exception.DNSException: it is no query.
    """
    asked = dns.message.from_wire(query)
    made: Any = dns.message.make_response(asked)
    made.flags |= dns.flags.AA
    question = asked.question[0]
    addresses = resolve(question.name.to_text(omit_final_dot=True).lower())
    if addresses is None:
        made.set_rcode(dns.rcode.NXDOMAIN)
    elif addresses and question.rdtype == dns.rdatatype.A:
        rdclass, rdtype = dns.rdataclass.IN, dns.rdatatype.A
        made.answer.append(
            dns.rrset.from_text_list(question.name, TTL_SECONDS, rdclass, rdtype, addresses)
        )
    return bytes(made.to_wire())


class DnsServer(asyncio.DatagramProtocol):
    """Answers over UDP, until its transport is closed."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._transport.sendto(answer(data, self._resolve), address)
