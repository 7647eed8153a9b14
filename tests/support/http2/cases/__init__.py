"""Required reactions of a server to a client's frames, by section of RFC 9113 and RFC 7541.

A case has the bytes after the preface and the client's settings, and the allowed outcomes.
Requirements are in the words of RFC 9113; where it leaves a choice, a case has several outcomes.
"""

from tests.support.http2.cases.case import Case
from tests.support.http2.cases.compression import COMPRESSION
from tests.support.http2.cases.fields import FIELDS
from tests.support.http2.cases.frame_types import FRAME_TYPES
from tests.support.http2.cases.framing import FRAMING
from tests.support.http2.cases.states import STATES

CASES: tuple[Case, ...] = (*FRAMING, *STATES, *FRAME_TYPES, *FIELDS, *COMPRESSION)
