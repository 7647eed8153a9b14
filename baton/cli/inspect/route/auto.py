"""Which rule of `auto` matches a described request, and which model it runs as."""

from dataclasses import dataclass
from typing import Any

from baton.auto.features import RequestFeatures, tokens_of
from baton.auto.rules import CompiledRules
from baton.cli.inspect.route.described_request import DescribedRequest
from baton.cli.shared.cluster_view import ClusterView
from baton.cli.shared.errors import CommandError
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.tenancy.records.auto import AUTO, AutoRules
from baton.tenancy.records.tenants import Tenant, parse


@dataclass(frozen=True, slots=True)
class AutoExplanation:
    """How the rules of `auto` choose a model."""

    rule: str
    """Name of the rule that matched; empty: none did."""
    models: tuple[str, ...]
    """In order of preference, before prices and waits."""
    model: str
    """The first of them that workers of the cluster serve."""
    cheapest: bool = False
    """Whether prices at the frontends decide the order."""

    def sentence(self) -> str:
        """Return it as text."""
        rule = f"rule {self.rule} matches" if self.rule else "no rule matches"
        order = "the cheapest first" if self.cheapest else "in this order"
        return f"auto: {rule}: {', '.join(self.models)}, {order}. Explained for {self.model}:"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"rule": self.rule, "models": list(self.models), "model": self.model}


async def explain_auto(
    view: ClusterView, etcd: Etcd, cluster: str, described: DescribedRequest
) -> AutoExplanation | None:
    """Return how a described request's model is chosen; None: it names the model.

    Raises:
        CommandError: there are no rules, or workers serve none of the models.
        EtcdError: etcd is unavailable.
    """
    if described.model != AUTO or view.cards(AUTO):
        return None
    stored = await etcd.get(keys.auto(cluster) + AUTO)
    record = None if stored is None else parse(AutoRules, AUTO, stored)
    if record is None or not record.models:
        raise CommandError("auto has no rules: set them with `baton auto set`, or name a model.")
    text = described.text
    features = RequestFeatures(
        (text,),
        tokens_of([text]) if text else described.prompt_tokens,
        described.max_tokens,
        described.tools,
        described.schema,
        tier=await _tier(etcd, cluster, described.tenant),
        priority_class=described.priority or "interactive",
    )
    rule = CompiledRules(record).match(features)
    models = record.models if rule is None else rule.models
    served = [name for name in models if view.cards(name)]
    if not served:
        raise CommandError(
            f"auto chooses {', '.join(models)} for this request, and no worker serves any of them."
        )
    cheapest = rule is not None and rule.cheapest
    return AutoExplanation("" if rule is None else rule.name, models, served[0], cheapest)


async def _tier(etcd: Etcd, cluster: str, tenant: str) -> str:
    stored = await etcd.get(f"{keys.tenancy(cluster)}tenants/{tenant}")
    return "enterprise" if stored is None else parse(Tenant, tenant, stored).tier.value
