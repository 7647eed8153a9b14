"""Rules for what is rendered, each a small function; `RULES` has all of them."""

import importlib
import pkgutil

from tests.k8s.manifests.rules.registry import RULES

__all__ = ["RULES"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
