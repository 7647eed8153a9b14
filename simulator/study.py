"""Runs of one trace on one cluster under several policies, printed as they end."""

from typing import TextIO

from simulator.config import ClusterConfig
from simulator.policies.catalog import PolicyEntry
from simulator.report.files import write_requests
from simulator.report.table import print_failure, print_row
from simulator.request import Request
from simulator.run import RunOutcome, Targets, find_multiple, simulate
from simulator.traces.trace import Trace


class Study:
    """Collects the outcomes of its runs.

    Args:
        trace: requests of the runs.
        config: the cluster.
        targets: targets that decide whether a load is sustained.
        seed: seed of all random numbers.
        requests_file: receives each request of runs outside of searches; None: disabled.
    """

    def __init__(
        self,
        trace: Trace,
        config: ClusterConfig,
        targets: Targets,
        seed: int,
        requests_file: TextIO | None = None,
    ) -> None:
        self.targets = targets
        self.found: list[RunOutcome] = []
        """Outcomes shown in the table."""
        self.runs: list[RunOutcome] = []
        """All runs, including those of searches."""
        self._trace = trace
        self._config = config
        self._seed = seed
        self._requests_file = requests_file

    def run(self, policy: PolicyEntry, multiple: float) -> None:
        """Run a policy at a multiple of the recorded rate."""
        requests: list[Request] = []
        outcome = self._simulate(policy, multiple, requests=requests)
        self.found.append(outcome)
        print_row(outcome)
        if self._requests_file is not None:
            write_requests(self._requests_file, outcome, requests)

    def find(self, policy: PolicyEntry, between: tuple[float, float]) -> None:
        """Find the highest multiple that a policy sustains, starting between two multiples."""
        low, high = between
        best, _ = find_multiple(
            lambda multiple: self._simulate(policy, multiple, give_up=True), low=low, high=high
        )
        if best is None:
            print_failure(policy.name, low)
        else:
            self.found.append(best)
            print_row(best)

    def _simulate(
        self,
        policy: PolicyEntry,
        multiple: float,
        *,
        give_up: bool = False,
        requests: list[Request] | None = None,
    ) -> RunOutcome:
        outcome = simulate(
            self._trace,
            self._config,
            policy,
            multiple=multiple,
            seed=self._seed,
            targets=self.targets,
            give_up=give_up,
            requests=requests,
        )
        self.runs.append(outcome)
        return outcome
