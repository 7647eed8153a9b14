"""Mistakes that people make in manifests, and the rule that notices each."""

from tests.k8s.mutations.mutation import Mutation
from tests.k8s.mutations.objects import OBJECTS
from tests.k8s.mutations.pods import PODS
from tests.k8s.mutations.relations import RELATIONS
from tests.k8s.mutations.scaling import SCALING

__all__ = ["MUTATIONS", "Mutation"]

MUTATIONS: tuple[Mutation, ...] = (*OBJECTS, *PODS, *RELATIONS, *SCALING)
