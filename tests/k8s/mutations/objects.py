"""Mistakes in objects as such."""

from tests.k8s.mutations.mutation import Mutation

DECODE, ETCD, FRONTEND = "Deployment/decode", "StatefulSet/etcd", "Deployment/frontend"
POD = "spec.template.spec"
WORKER = f"{POD}.containers.worker"
LONG = "x" * 64
_DOUBLE = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "decode", "namespace": "baton"},
    "automountServiceAccountToken": False,
}
_CRONTAB = {
    "apiVersion": "stable.example.com/v1",
    "kind": "CronTab",
    "metadata": {"name": "decode", "namespace": "baton"},
}

OBJECTS = (
    # Shapes.
    Mutation("schema_knows_it", DECODE, f"{WORKER}.imagePulPolicy", "Always"),
    Mutation("schema_knows_it", DECODE, f"{POD}.hostname", 5),
    Mutation("schema_knows_it", DECODE, "apiVersion", "extensions/v1beta1"),
    Mutation("schema_knows_it", "Certificate/router-tls", "spec.issuer", "authority"),
    Mutation("schema_knows_it", "Certificate/router-tls", "spec.usages.0", "serving"),
    Mutation("schema_knows_it", DECODE, "", _CRONTAB),
    Mutation(
        "schema_knows_it",
        "ScaledObject/decode",
        "spec.triggers.0.metadata.activationThreshold",
        0,
        "components/autoscaling",
    ),
    Mutation(
        "schema_knows_it",
        "HTTPRoute/baton",
        "spec.rules.0.matches.0.path.type",
        "Prefix",
        "components/gateway",
    ),
    Mutation(
        "schema_knows_it",
        "GRPCRoute/baton",
        "spec.rules.0.matches.0.method.service",
        "/baton.v1.InferenceService",
        "components/gateway",
    ),
    Mutation(
        "schema_knows_it",
        "PodMonitor/baton",
        "spec.podMetricsEndpoints.0.interval",
        "15",
        "components/monitoring",
    ),
    # Names and labels.
    Mutation("names_are_allowed", "PodDisruptionBudget/decode", "metadata.name", "decode_budget"),
    Mutation("names_are_allowed", DECODE, f"{POD}.containers.0.name", "Worker"),
    Mutation("nothing_is_there_twice", DECODE, "", _DOUBLE),
    Mutation("labels_are_allowed", DECODE, "metadata.labels.team", LONG),
    Mutation("labels_are_allowed", DECODE, "spec.template.metadata.labels.team", "a b"),
    Mutation("labels_are_allowed", DECODE, "metadata.annotations", {"-owner": "me"}),
    Mutation("all_is_in_the_namespace", "Service/router", "metadata.namespace", "default"),
    Mutation("all_is_in_the_namespace", "Namespace/baton", "metadata.namespace", "baton"),
    Mutation(
        "labels_say_whose_it_is", "Deployment/cli", "metadata.name", "shell", "components/cli"
    ),
    # Words, numbers, operators.
    Mutation("words_are_known", DECODE, f"{WORKER}.imagePullPolicy", "Sometimes"),
    Mutation("words_are_known", DECODE, f"{WORKER}.ports.grpc.protocol", "HTTP"),
    Mutation(
        "words_are_known", ETCD, "spec.persistentVolumeClaimRetentionPolicy", {"whenScaled": "Keep"}
    ),
    Mutation(
        "words_are_known", "PodDisruptionBudget/router", "spec.unhealthyPodEvictionPolicy", "Always"
    ),
    Mutation(
        "words_are_known", DECODE, f"{POD}.topologySpreadConstraints.0.whenUnsatisfiable", "Maybe"
    ),
    Mutation("words_are_known", ETCD, "spec.volumeClaimTemplates.0.spec.accessModes.0", "RWO"),
    Mutation("words_are_known", "Service/router", "spec.sessionAffinity", "Cookie"),
    Mutation("words_are_known", "Service/router", "spec.internalTrafficPolicy", "Node"),
    Mutation("numbers_are_within_bounds", "Service/frontend", "spec.ports.http.port", 70000),
    Mutation("numbers_are_within_bounds", DECODE, "spec.revisionHistoryLimit", -1),
    Mutation(
        "numbers_are_within_bounds", DECODE, f"{WORKER}.livenessProbe.initialDelaySeconds", -1
    ),
    Mutation("operators_suit_their_values", DECODE, f"{POD}.tolerations", [{"operator": "In"}]),
    Mutation(
        "operators_suit_their_values",
        DECODE,
        f"{POD}.tolerations",
        [{"key": "gpu", "operator": "Exists", "value": "a100"}],
    ),
    Mutation(
        "operators_suit_their_values",
        DECODE,
        f"{POD}.affinity",
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "gpu", "operator": "Equals", "values": ["1"]}
                            ]
                        }
                    ]
                }
            }
        },
    ),
    Mutation("paths_are_absolute", DECODE, f"{WORKER}.volumeMounts.tmp.mountPath", "tmp"),
    Mutation("paths_are_absolute", DECODE, f"{WORKER}.volumeMounts.tmp.subPath", "tmp"),
    # Quantities.
    Mutation("quantities_are_quantities", DECODE, f"{WORKER}.resources.limits.cpu", "4 cores"),
    Mutation("quantities_are_quantities", DECODE, f"{WORKER}.resources.requests.cpu", "0.1m"),
    Mutation("quantities_are_quantities", DECODE, f"{WORKER}.resources.limits.memory", "2GB"),
    Mutation("quantities_are_quantities", DECODE, f"{POD}.volumes.tmp.emptyDir.sizeLimit", "1Mib"),
    Mutation(
        "containers_have_requests_and_limits", DECODE, f"{WORKER}.resources.requests.memory", "3Gi"
    ),
    Mutation("containers_have_requests_and_limits", FRONTEND, f"{POD}.containers.0.resources", {}),
    Mutation(
        "containers_have_requests_and_limits",
        DECODE,
        f"{WORKER}.resources.requests.nvidia\\.com/gpu",
        "2",
        "overlays/gpu",
    ),
    Mutation("temporary_volumes_are_bounded", DECODE, f"{POD}.volumes.tmp.emptyDir.sizeLimit"),
    Mutation(
        "memory_has_room_for_volumes_in_it",
        DECODE,
        f"{POD}.volumes.arena.emptyDir.sizeLimit",
        "1Gi",
    ),
    Mutation(
        "arenas_fit_their_volumes", DECODE, f"{POD}.volumes.arena.emptyDir.sizeLimit", "512Mi"
    ),
    Mutation(
        "arenas_fit_their_volumes", DECODE, f"{WORKER}.volumeMounts.arena.mountPath", "/run/kv"
    ),
    # What gateways and Prometheus are told.
    Mutation(
        "routes_lead_to_services",
        "HTTPRoute/inference",
        "spec.rules.0.backendRefs.0.name",
        "frontend",
        "components/endpoint-picker",
    ),
    Mutation(
        "pools_have_pods_and_a_picker",
        "InferencePool/baton",
        "spec.targetPorts.0.number",
        80,
        "components/endpoint-picker",
    ),
    Mutation(
        "pools_have_pods_and_a_picker",
        "InferencePool/baton",
        "spec.selector.matchLabels",
        {"app.kubernetes.io/name": "router"},
        "components/endpoint-picker",
    ),
    Mutation(
        "pools_have_pods_and_a_picker",
        "InferencePool/baton",
        "spec.endpointPickerRef.port.number",
        9003,
        "components/endpoint-picker",
    ),
    Mutation(
        "schema_knows_it",
        "InferencePool/baton",
        "spec.endpointPickerRef.failureMode",
        "Open",
        "components/endpoint-picker",
    ),
    Mutation(
        "routes_lead_to_services",
        "HTTPRoute/baton",
        "spec.rules.0.backendRefs.0.port",
        8000,
        "components/gateway",
    ),
    Mutation(
        "routes_lead_to_services",
        "GRPCRoute/baton",
        "spec.rules.0.backendRefs.0.name",
        "frontends",
        "components/gateway",
    ),
    Mutation(
        "monitors_scrape_all_pods",
        "PodMonitor/baton",
        "spec.podMetricsEndpoints.1.port",
        "kv-metrics",
        "components/monitoring",
    ),
    Mutation(
        "alerts_are_those_of_the_docs",
        "PrometheusRule/baton",
        "spec.groups.0.rules.0.expr",
        "up == 0",
        "components/monitoring",
    ),
    Mutation(
        "scalers_have_their_bounds",
        "ScaledObject/decode",
        "spec.minReplicaCount",
        99,
        "components/autoscaling",
    ),
    Mutation(
        "scalers_have_their_bounds",
        "ScaledObject/decode",
        "spec.scaleTargetRef.name",
        "decoder",
        "components/autoscaling",
    ),
    Mutation("scalers_have_their_bounds", DECODE, "spec.replicas", 3, "components/autoscaling"),
    Mutation(
        "containers_have_requests_and_limits", DECODE, f"{WORKER}.resources.limits.memroy", "2Gi"
    ),
    Mutation("claims_ask_for_storage", ETCD, "spec.volumeClaimTemplates.0.spec.resources"),
    Mutation(
        "claims_ask_for_storage",
        "PersistentVolumeClaim/model",
        "spec.accessModes",
        [],
        "overlays/gpu",
    ),
    Mutation("names_are_allowed", "Service/router", "spec.ports.grpc.name", "gRPC"),
    Mutation("numbers_are_within_bounds", DECODE, "spec.revisionHistoryLimit", 0),
)
