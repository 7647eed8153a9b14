"""Python imports this at its start: wall clocks of this process are CLOCK_SHIFT_SECONDS off."""

import os
import time

_SHIFT = float(os.environ["CLOCK_SHIFT_SECONDS"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SHIFT
time.time_ns = lambda: _time_ns() + int(_SHIFT * 1e9)
