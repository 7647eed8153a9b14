"""What a server must do with what a client sends, section by section of RFC 9113 and RFC 7541.

A case is bytes after the preface and our settings, and what may come of them. Requirements as RFC
9113 words them; where it leaves a choice, each of the outcomes that it allows is one.
"""

from tests.support.http2.cases.case import Case
from tests.support.http2.cases.compression import COMPRESSION
from tests.support.http2.cases.fields import FIELDS
from tests.support.http2.cases.frame_types import FRAME_TYPES
from tests.support.http2.cases.framing import FRAMING
from tests.support.http2.cases.states import STATES

CASES: tuple[Case, ...] = (*FRAMING, *STATES, *FRAME_TYPES, *FIELDS, *COMPRESSION)
