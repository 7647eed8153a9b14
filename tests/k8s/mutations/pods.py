"""Mistakes in pods: what they may do, what they are made of, how they are probed and ended."""

from tests.k8s.mutations.mutation import GONE, Mutation
from tests.k8s.mutations.objects import DECODE, ETCD, FRONTEND, POD, WORKER

STORE = f"{POD}.initContainers.kvstore"
ROUTER = "Deployment/router"
SERVER = f"{POD}.containers.frontend"
USAGE = "components/usage"
LOG = "components/request-log"
STORED = "components/conversations"
KEPT = "components/usage+components/spool-volume"
_LIMITS = f"{POD}.containers.0.securityContext"

PODS = (
    # Pod security.
    Mutation(
        "namespace_is_restricted",
        "Namespace/baton",
        "metadata.labels.pod-security\\.kubernetes\\.io/enforce",
        "baseline",
    ),
    Mutation("nobody_is_root", DECODE, f"{POD}.securityContext.runAsUser", 65533),
    Mutation("nobody_is_root", DECODE, f"{POD}.securityContext.runAsNonRoot"),
    Mutation("nobody_is_root", DECODE, f"{WORKER}.securityContext.runAsNonRoot", False),
    Mutation("system_calls_are_filtered", DECODE, f"{POD}.securityContext.seccompProfile"),
    Mutation(
        "system_calls_are_filtered",
        DECODE,
        f"{WORKER}.securityContext.seccompProfile",
        {"type": "Unconfined"},
    ),
    Mutation("privileges_cannot_grow", ROUTER, f"{_LIMITS}.allowPrivilegeEscalation"),
    Mutation("privileges_cannot_grow", ROUTER, f"{_LIMITS}.privileged", True),
    Mutation("capabilities_are_dropped", ROUTER, f"{_LIMITS}.capabilities.add", ["NET_ADMIN"]),
    Mutation("capabilities_are_dropped", DECODE, f"{STORE}.securityContext.capabilities"),
    Mutation("root_is_read_only", ETCD, f"{_LIMITS}.readOnlyRootFilesystem", False),
    Mutation("pods_are_apart_from_the_host", DECODE, f"{POD}.hostNetwork", True),
    Mutation("pods_are_apart_from_the_host", DECODE, f"{POD}.hostPID", True),
    Mutation("pods_are_apart_from_the_host", DECODE, f"{WORKER}.ports.grpc.hostPort", 50051),
    Mutation(
        "volumes_are_of_restricted_kinds",
        DECODE,
        f"{POD}.volumes.tmp",
        {"name": "tmp", "hostPath": {"path": "/tmp", "type": "Directory"}},
    ),
    Mutation("pods_have_no_token", DECODE, f"{POD}.automountServiceAccountToken", True),
    Mutation("pods_have_no_token", DECODE, f"{POD}.serviceAccountName", "default"),
    Mutation("pods_have_no_token", "ServiceAccount/decode", "automountServiceAccountToken", True),
    Mutation("services_are_not_in_the_environment", DECODE, f"{POD}.enableServiceLinks"),
    # What belongs together.
    Mutation(
        "mounts_have_volumes",
        DECODE,
        f"{WORKER}.volumeMounts.-",
        {"name": "cache", "mountPath": "/cache"},
    ),
    Mutation(
        "mounts_have_volumes",
        DECODE,
        f"{POD}.volumes.-",
        {"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}},
    ),
    Mutation(
        "mounts_have_volumes",
        DECODE,
        f"{POD}.volumes.tmp.configMap",
        {"items": [{"key": "a", "path": "a"}]},
    ),
    Mutation(
        "port_names_are_allowed",
        ROUTER,
        f"{POD}.containers.0.ports.-",
        {"name": "openai-compatible", "containerPort": 8001},
    ),
    Mutation(
        "port_names_are_allowed",
        ROUTER,
        f"{POD}.containers.0.ports.-",
        {"name": "8001", "containerPort": 8001},
    ),
    Mutation(
        "ports_are_there_once",
        FRONTEND,
        f"{POD}.containers.0.ports.-",
        {"name": "spare", "containerPort": 9090},
    ),
    Mutation(
        "variables_are_defined_before_use",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "HOST", "value": "$(POD_HOST)"},
    ),
    Mutation(
        "variables_are_defined_before_use",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ),
    Mutation(
        "variables_are_defined_before_use",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "ZONE", "valueFrom": {"fieldRef": {"fieldPath": "spec.zone"}}},
    ),
    Mutation("containers_are_restarted", DECODE, f"{POD}.restartPolicy", "OnFailure"),
    Mutation("containers_are_restarted", DECODE, f"{POD}.activeDeadlineSeconds", 3600),
    Mutation("containers_are_restarted", DECODE, f"{STORE}.restartPolicy", "Allways"),
    Mutation("images_have_versions", ETCD, f"{POD}.containers.0.image", "registry.k8s.io/etcd"),
    Mutation(
        "images_have_versions", ETCD, f"{POD}.containers.0.image", "registry.k8s.io/etcd:latest"
    ),
    Mutation("images_have_versions", DECODE, f"{WORKER}.imagePullPolicy", "Never"),
    Mutation(
        "images_are_of_one_build", DECODE, f"{WORKER}.image", "registry.example.com/baton:0.0.9"
    ),
    Mutation("programs_are_known", DECODE, f"{WORKER}.args.1", "decoder"),
    # Probes, and the end.
    Mutation("probes_can_pass", ETCD, f"{POD}.containers.0.readinessProbe.httpGet.port", "health"),
    Mutation("probes_can_pass", DECODE, f"{WORKER}.livenessProbe.successThreshold", 2),
    Mutation("probes_can_pass", DECODE, f"{WORKER}.readinessProbe.timeoutSeconds", 1),
    Mutation("probes_ask_the_ops_port", DECODE, f"{WORKER}.readinessProbe.httpGet.port", "grpc"),
    Mutation("probes_ask_the_ops_port", DECODE, f"{WORKER}.livenessProbe.httpGet.path", "/readyz"),
    Mutation("probes_ask_the_ops_port", DECODE, f"{WORKER}.startupProbe"),
    Mutation(
        "probes_ask_the_ops_port", ROUTER, f"{POD}.containers.0.env.BATON_OPS_PORT.value", "9091"
    ),
    Mutation(
        "hooks_end_before_the_grace_does",
        ETCD,
        f"{POD}.containers.0.lifecycle",
        {"preStop": {"sleep": {"seconds": 60}}},
    ),
    Mutation(
        "hooks_end_before_the_grace_does",
        DECODE,
        f"{WORKER}.lifecycle",
        {"preStop": {"exec": {"command": ["sh", "-c", "sleep 5"]}}},
    ),
    Mutation("grace_outlasts_the_drain", FRONTEND, f"{POD}.terminationGracePeriodSeconds", 120),
    Mutation("grace_outlasts_the_drain", DECODE, f"{STORE}.env.BATON_DRAIN_SECONDS.value", "30"),
    Mutation(
        "grace_outlasts_the_drain",
        ROUTER,
        f"{POD}.containers.0.lifecycle",
        {"preStop": {"sleep": {"seconds": 20}}},
    ),
    # Baton's own settings.
    Mutation(
        "variables_are_settings",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "BATON_HTTP_PORT", "value": "80"},
    ),
    Mutation(
        "variables_are_settings",
        ROUTER,
        f"{POD}.containers.0.env.-",
        {"name": "BATON_PLACEMENT_DISAGGREGATION", "value": "sometimes"},
    ),
    Mutation("variables_are_settings", "ConfigMap/baton", "data.BATON_ETCD_ENDPOINT", "etcd:2379"),
    Mutation(
        "workers_name_their_store", DECODE, f"{WORKER}.env.BATON_KV_STORE_ID.value", "$(POD_NAME)"
    ),
    Mutation(
        "instances_have_ids_and_addresses",
        ROUTER,
        f"{POD}.containers.0.env.BATON_INSTANCE_ID.value",
        "router",
    ),
    Mutation(
        "instances_have_ids_and_addresses",
        ROUTER,
        f"{POD}.containers.0.env.BATON_ADVERTISE_HOST.value",
        "router",
    ),
    Mutation(
        "references_exist",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "ZONE", "valueFrom": {"configMapKeyRef": {"name": "zones", "key": "zone"}}},
    ),
    Mutation("references_exist", DECODE, f"{POD}.priorityClassName", "high"),
    Mutation(
        "references_exist",
        DECODE,
        f"{POD}.resourceClaims.0.resourceClaimTemplateName",
        "gpu",
        "components/gpu-claim",
    ),
    Mutation(
        "references_exist",
        DECODE,
        f"{WORKER}.env.-",
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
    ),
    Mutation("references_exist", "PersistentVolumeClaim/model", "", rendering="overlays/gpu"),
    Mutation("probes_can_pass", ETCD, f"{POD}.containers.0.readinessProbe"),
    Mutation("probes_can_pass", DECODE, f"{WORKER}.startupProbe.failureThreshold", 3),
    Mutation("probes_can_pass", DECODE, f"{WORKER}.livenessProbe.failureThreshold", 1),
    Mutation("mounts_have_volumes", DECODE, f"{WORKER}.volumeMounts.tmp.readOnly", True),
    Mutation(
        "variables_are_settings",
        "ConfigMap/baton",
        "data.BATON_TELEMETRY_OTLP_HEADERS",
        "authorization=secret",
    ),
    # Usage.
    Mutation(
        "secrets_are_where_they_are_looked_for",
        FRONTEND,
        f"{SERVER}.env.BATON_STATE_URL_FILE.value",
        "/var/run/baton/url",
        USAGE,
    ),
    Mutation(
        "secrets_are_where_they_are_looked_for",
        FRONTEND,
        f"{POD}.initContainers.db-upgrade.env.BATON_STATE_URL_FILE.value",
        "/var/run/baton/state/uri",
        USAGE,
    ),
    Mutation(
        "secrets_are_where_they_are_looked_for",
        FRONTEND,
        f"{POD}.volumes.kafka.secret.secretName",
        "baton-state",
        LOG,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_USAGE_SPOOL_PATH.value",
        "/tmp/usage",
        USAGE,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_USAGE_SPOOL_PATH.value",
        "/var/spool",
        USAGE,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_USAGE_SPOOL_BYTES.value",
        "400MiB",
        LOG,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_CONVERSATIONS_SPOOL_PATH.value",
        "/tmp/conversations",
        STORED,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_CONVERSATIONS_SPOOL_PATH",
        GONE,
        STORED,
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{SERVER}.env.BATON_CONVERSATIONS_SPOOL_BYTES.value",
        "128MiB",
        f"{STORED}+{USAGE}",
    ),
    Mutation(
        "spools_fit_their_volumes",
        FRONTEND,
        f"{POD}.volumes.spool.emptyDir.medium",
        "Memory",
        LOG,
    ),
    Mutation(
        "spools_fit_their_volumes", "ConfigMap/baton", "data.BATON_USAGE_KAFKA_BROKERS", GONE, LOG
    ),
    Mutation(
        "spools_fit_their_volumes",
        "StatefulSet/frontend",
        "spec.volumeClaimTemplates.0.spec.resources.requests.storage",
        "256Mi",
        KEPT,
    ),
    Mutation(
        "containers_are_restarted",
        FRONTEND,
        f"{POD}.initContainers.db-upgrade.restartPolicy",
        "Always",
        USAGE,
    ),
    Mutation(
        "images_are_of_one_build",
        FRONTEND,
        f"{POD}.initContainers.db-upgrade.image",
        "localhost/baton-extras:0.0.9",
        USAGE,
    ),
    Mutation(
        "images_are_of_one_build",
        FRONTEND,
        f"{SERVER}.image",
        "registry.example.com/baton-extras:0.1.0",
        USAGE,
    ),
    Mutation(
        "clients_are_in_their_image", FRONTEND, f"{SERVER}.image", "localhost/baton:0.1.0", LOG
    ),
    Mutation(
        "clients_are_in_their_image",
        "Deployment/router",
        f"{POD}.containers.router.image",
        "localhost/baton-extras:0.1.0",
        LOG,
    ),
    Mutation(
        "secrets_are_read_by_their_user_only",
        FRONTEND,
        f"{POD}.volumes.state.secret.defaultMode",
        0o444,
        USAGE,
    ),
    Mutation(
        "variables_are_settings",
        FRONTEND,
        f"{SERVER}.env.-",
        {"name": "BATON_USAGE_KAFKA_PASSWORD_FILE", "value": "/var/run/baton/kafka/password"},
        LOG,
    ),
    Mutation(
        "variables_are_settings",
        "ConfigMap/baton",
        "data.BATON_USAGE_KAFKA_SASL_PASSWORD",
        "secret",
        LOG,
    ),
)
