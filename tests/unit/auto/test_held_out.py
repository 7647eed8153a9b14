"""The example rules on prompts of a generator that they were not tuned on."""

from baton.auto.rules import CompiledRules
from baton.cli.admin.auto.commands import read_rules
from baton.tenancy.directory.principal import LOCAL
from baton.tenancy.records.auto import check_auto
from bench.auto.agreement import RULES, costs, request_of
from bench.auto.held_out import held_out
from bench.auto.prompts import LARGE, SMALL
from services.frontend.generation.resolution.auto import features_of


def test_the_example_rules_choose_as_the_labels_of_unseen_prompts() -> None:
    record = read_rules(RULES)
    check_auto(record)
    rules = CompiledRules(record)
    prompts = held_out(200, seed=7)
    features = [features_of(request_of(prompt), LOCAL) for prompt in prompts]
    models = [rules.choose(one).models[0] for one in features]
    labels = [prompt.label for prompt in prompts]
    right = [model == label for model, label in zip(models, labels, strict=True)]
    enough = [model == LARGE or label == SMALL for model, label in zip(models, labels, strict=True)]
    assert sum(right) >= 0.85 * len(prompts)
    assert sum(enough) > labels.count(SMALL)
    most = costs(prompts, features, [LARGE] * len(prompts))
    assert costs(prompts, features, models) <= 0.45 * most
