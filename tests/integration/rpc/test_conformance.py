"""HTTP/2 as RFC 9113 has it: each case on a connection of its own."""

import pytest

from tests.support.http2.cases import CASES
from tests.support.http2.cases.case import Case
from tests.support.http2.cases.run import check


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_comes_of_it(address: str, case: Case):
    await check(address, case)
