"""The torch engine's compiled operators for CPUs: `ops.cpp`, built once per machine."""
