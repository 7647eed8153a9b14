"""Python imports this at its start: the process writes what time its clock says to CLOCK_TOLD.

When that was by the clock of the machine, the file's own time says.
"""

import os
import time

with open(os.environ["CLOCK_TOLD"], "w") as _file:  # noqa: PTH123  # pathlib takes long
    _file.write(str(time.time()))
