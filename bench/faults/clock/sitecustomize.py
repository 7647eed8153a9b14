"""Imported by Python at startup: writes the process's clock time to CLOCK_TOLD.

The file's own time is the machine's clock at that moment.
"""

import os
import time

with open(os.environ["CLOCK_TOLD"], "w") as _file:  # noqa: PTH123  # pathlib takes long
    _file.write(str(time.time()))
