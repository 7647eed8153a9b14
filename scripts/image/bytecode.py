"""Write the bytecode of what modules import: `python bytecode.py DIRECTORY MODULE...`.

Only of files below DIRECTORY. The bytecode is valid whatever the times of the sources are, for a
layer has one time for all its files, and the same sources give the same bytes.
"""

import importlib
import py_compile
import sys
from pathlib import Path


def compile_imported(directory: Path, modules: list[str]) -> int:
    """Import modules, and write the bytecode of all that this loads; return of how many files."""
    sys.dont_write_bytecode = True
    for name in modules:
        importlib.import_module(name)
    loaded = {getattr(module, "__file__", None) for module in sys.modules.values()}
    sources = sorted(path for path in loaded if path and path.endswith(".py"))
    below = [path for path in sources if Path(path).is_relative_to(directory)]
    for path in below:
        py_compile.compile(
            path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    return len(below)


if __name__ == "__main__":
    print(compile_imported(Path(sys.argv[1]), sys.argv[2:]), "files compiled")
