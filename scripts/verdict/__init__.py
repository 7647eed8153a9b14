"""Whether the tests can be believed: the whole suite again and again, in the ways that turn tests.

    make verdict                                    the twelve runs
    make verdict ARGS="--runs slowed:1 --tests tests/unit/rpc"
    make test-changed BASE=<commit>                 what changed since then, 50 times

Each run is `make test` in a clone of its own of HEAD, with what is installed here.
"""
