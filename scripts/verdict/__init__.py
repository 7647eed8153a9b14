"""Repeated runs of the whole test suite, under conditions that reveal unreliable tests.

    make verdict                                    all runs
    make verdict ARGS="--runs slowed:1 --tests tests/unit/rpc"
    make test-changed BASE=<commit>                 the tests changed since then, 50 times

Each run is `make test` in its own clone of HEAD, with the packages installed here.
"""
