"""Mistakes between objects: who selects, reaches, scales and certifies whom."""

from tests.k8s.mutations.mutation import GONE, Mutation
from tests.k8s.mutations.objects import DECODE, ETCD, FRONTEND, POD, WORKER

NAME = "app\\.kubernetes\\.io/name"
_ROLLING = "spec.strategy.rollingUpdate"
PART_OF = "app\\.kubernetes\\.io/part-of"
PULL, JOB = "components/model-pull", "components/model-job"
BACKUP = "components/backup"
GPU = "components/gpu"
_ALL = {"app.kubernetes.io/part-of": "baton"}
_ALL_PODS = {"podSelector": {"matchLabels": _ALL}}
_INSIDE = [{"namespaceSelector": {"matchLabels": {"team": "ours"}}}]

RELATIONS = (
    # Workloads.
    Mutation(
        "selectors_choose_their_own_pods", DECODE, f"spec.selector.matchLabels.{NAME}", "decoder"
    ),
    Mutation(
        "selectors_choose_their_own_pods",
        DECODE,
        "spec.selector.matchLabels",
        {"app.kubernetes.io/part-of": "baton"},
    ),
    Mutation("rollouts_lose_nobody", DECODE, f"{_ROLLING}.maxSurge", 0),
    Mutation("rollouts_lose_nobody", DECODE, f"{_ROLLING}.maxUnavailable", "50%"),
    Mutation("rollouts_lose_nobody", DECODE, f"{_ROLLING}.maxSurge", "1 pod"),
    Mutation("rollouts_lose_nobody", DECODE, "spec.strategy", {"type": "Recreate"}),
    Mutation("rollouts_lose_nobody", DECODE, _ROLLING, {"maxSurge": 0, "maxUnavailable": 1}),
    Mutation("rollouts_lose_nobody", DECODE, f"{_ROLLING}.maxSurge", 1, GPU),
    Mutation("rollouts_lose_nobody", DECODE, f"{_ROLLING}.maxUnavailable", 2, GPU),
    Mutation("rollouts_lose_nobody", DECODE, "spec.strategy", GONE, GPU),
    Mutation("rollouts_lose_nobody", DECODE, "spec.minReadySeconds", 600),
    Mutation(
        "rollouts_lose_nobody",
        "DaemonSet/kvstore",
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        0,
        "components/store-per-node",
    ),
    Mutation("there_are_several", FRONTEND, "spec.replicas", 1),
    Mutation("pods_spread", DECODE, f"{POD}.topologySpreadConstraints.1.topologyKey", "zone"),
    Mutation(
        "pods_spread",
        DECODE,
        f"{POD}.topologySpreadConstraints.0.labelSelector.matchLabels.{NAME}",
        "prefill",
    ),
    Mutation("pods_spread", DECODE, f"{POD}.topologySpreadConstraints.0.minDomains", 2),
    Mutation("budgets_let_nodes_drain", "PodDisruptionBudget/decode", "spec.minAvailable", 1),
    Mutation("budgets_let_nodes_drain", "PodDisruptionBudget/decode", "spec.maxUnavailable", 0),
    Mutation(
        "budgets_let_nodes_drain",
        "PodDisruptionBudget/decode",
        f"spec.selector.matchLabels.{NAME}",
        "decoder",
    ),
    Mutation("budgets_let_nodes_drain", "PodDisruptionBudget/router", ""),
    Mutation("sets_have_their_service", ETCD, "spec.serviceName", "etcds"),
    # Services.
    Mutation("services_reach_pods", "Service/router", "spec.selector.tier", "front"),
    Mutation("services_reach_pods", "Service/router", "spec.ports.grpc.targetPort", "h2c"),
    Mutation("services_reach_pods", "Service/frontend", "spec.type", "NodePort"),
    Mutation("services_reach_pods", "Service/frontend", "spec.publishNotReadyAddresses", True),
    Mutation("clients_find_every_pod", "Service/router-headless", "spec.clusterIP"),
    Mutation("clients_find_every_pod", "Service/frontend-headless", ""),
    # Policies.
    Mutation("policies_are_the_arrows", "NetworkPolicy/default-deny", ""),
    Mutation("policies_are_the_arrows", "NetworkPolicy/default-deny", "spec.policyTypes.1"),
    Mutation("policies_name_peers_and_ports", "NetworkPolicy/traces", "spec.egress.0.to"),
    Mutation(
        "policies_are_the_arrows", "NetworkPolicy/stores", "spec.ingress.0.ports.0.port", 5005
    ),
    Mutation(
        "policies_are_the_arrows",
        "NetworkPolicy/frontend",
        "spec.egress.0.to.0.podSelector.matchExpressions.0.values.0",
        "etcd",
    ),
    Mutation("policies_are_the_arrows", "NetworkPolicy/etcd", "spec.ingress.1.ports.0.port", 2379),
    Mutation(
        "policies_are_the_arrows",
        "NetworkPolicy/frontend",
        "spec.egress.-",
        {
            "to": [{"podSelector": {"matchLabels": _ALL}}],
            "ports": [{"protocol": "TCP", "port": 50052}],
        },
    ),
    # Models.
    Mutation(
        "workers_find_their_model", DECODE, f"{WORKER}.env.BATON_ENGINE_MODEL.value", "/srv", PULL
    ),
    Mutation(
        "workers_find_their_model",
        DECODE,
        f"{WORKER}.env.BATON_ENGINE_MODEL.value",
        "/model/model",
        "overlays/gpu",
    ),
    Mutation(
        "workers_find_their_model", DECODE, f"{WORKER}.volumeMounts.models.mountPath", "/m", PULL
    ),
    Mutation(
        "downloads_have_their_source", "ConfigMap/model", "data.MODEL_SOURCE", "org/name", PULL
    ),
    Mutation(
        "downloads_have_their_source",
        "Job/model-pull",
        f"{POD}.containers.0.command.3",
        "/mnt/model",
        "components/model-job",
    ),
    Mutation(
        "downloads_are_let_out",
        DECODE,
        "spec.template.metadata.labels.baton\\.dev/models",
        "client",
    ),
    Mutation(
        "downloads_are_let_out",
        "Deployment/frontend",
        "spec.template.metadata.labels.baton\\.dev/files",
        rendering="components/batches+components/network-policies",
    ),
    *(
        Mutation(
            "those_who_use_others_reach_them",
            target,
            f"spec.template.metadata.labels.baton\\.dev/{label}",
            value,
        )
        for target, label, value in (
            (DECODE, "etcd", "outside"),
            (FRONTEND, "postgres", "client"),
            (FRONTEND, "kafka", "client"),
        )
    ),
    Mutation(
        "containers_are_restarted",
        "CronJob/backup",
        "spec.jobTemplate.spec.template.spec.restartPolicy",
        "Always",
        BACKUP,
    ),
    Mutation(
        "labels_say_whose_it_is",
        "CronJob/backup",
        f"spec.jobTemplate.spec.template.metadata.labels.{NAME}",
        "cli",
        BACKUP,
    ),
    Mutation("containers_are_restarted", "Job/model-pull", f"{POD}.restartPolicy", "Always", JOB),
    Mutation(
        "labels_say_whose_it_is",
        "Job/model-pull",
        f"spec.template.metadata.labels.{PART_OF}",
        "baton",
        JOB,
    ),
    Mutation(
        "nobody_is_root", "Job/model-pull", f"{POD}.securityContext.runAsNonRoot", rendering=JOB
    ),
    Mutation("policies_let_the_cluster_in", "NetworkPolicy/names", ""),
    Mutation("policies_let_the_cluster_in", "NetworkPolicy/scrapes", "spec.ingress.0.ports.1"),
    Mutation(
        "policies_let_the_cluster_in", "NetworkPolicy/traces", "spec.egress.0.ports.0.port", 4318
    ),
    Mutation(
        "policies_let_the_cluster_in", "NetworkPolicy/clients", "spec.ingress.0.from", _INSIDE
    ),
    # etcd and certificates.
    Mutation(
        "etcd_is_where_settings_say", "ConfigMap/baton", "data.BATON_ETCD_ENDPOINTS", "etcd:2379"
    ),
    Mutation("etcd_is_where_settings_say", ETCD, "spec.replicas", 5),
    Mutation(
        "etcd_stays_within_its_disk",
        ETCD,
        f"{POD}.containers.0.env.ETCD_QUOTA_BACKEND_BYTES.value",
        str(2 << 30),
    ),
    Mutation(
        "etcd_stays_within_its_disk",
        ETCD,
        f"{POD}.containers.0.env.ETCD_AUTO_COMPACTION_RETENTION.value",
        "0",
    ),
    Mutation(
        "etcd_is_where_settings_say",
        ETCD,
        f"{POD}.containers.0.env.ETCD_LISTEN_PEER_URLS.value",
        "http://0.0.0.0:2380",
    ),
    Mutation("etcd_is_where_settings_say", ETCD, "spec.podManagementPolicy", "OrderedReady"),
    Mutation("certificates_name_roles", "ConfigMap/baton", "data.BATON_TLS_CA"),
    Mutation(
        "health_checks_have_a_port",
        FRONTEND,
        f"{POD}.containers.0.env.BATON_HEALTH_PORT.value",
        "0",
    ),
    Mutation("policies_are_the_arrows", "NetworkPolicy/cli", "spec.egress.0.ports.5.port", 50054),
    Mutation(
        "policies_are_the_arrows",
        "NetworkPolicy/frontend-health",
        "spec.ingress.0.from.0",
        _ALL_PODS,
    ),
    Mutation("policies_are_the_arrows", "NetworkPolicy/cli", "spec.egress.0.ports.1"),
    Mutation(
        "certificates_name_roles", DECODE, f"{POD}.volumes.tls.secret.secretName", "router-tls"
    ),
    Mutation("certificates_name_roles", "Certificate/decode-tls", "spec.dnsNames.0", "decode"),
    Mutation(
        "etcd_is_called_by_its_names", "Certificate/etcd-tls", "spec.dnsNames", ["etcd", "*.etcd"]
    ),
    Mutation("etcd_is_called_by_its_names", "Certificate/etcd-tls", "spec.dnsNames.3"),
    Mutation("certificates_are_issued", "Issuer/authority", ""),
    Mutation("certificates_are_issued", "Certificate/router-tls", "spec.renewBefore", "2000h"),
    Mutation("certificates_are_issued", "Certificate/router-tls", "spec.usages", ["server auth"]),
    Mutation(
        "secrets_are_read_by_their_user_only",
        DECODE,
        f"{POD}.volumes.tls.secret.defaultMode",
        0o444,
    ),
    Mutation(
        "budgets_let_nodes_drain", "PodDisruptionBudget/decode", "spec.maxUnavailable", "100%"
    ),
    Mutation("services_reach_pods", "Service/router", "spec.externalIPs", ["192.0.2.1"]),
    Mutation("services_reach_pods", "Service/router", "spec.ports.grpc.protocol", "UDP"),
    Mutation(
        "policies_name_peers_and_ports",
        "NetworkPolicy/names",
        "spec.egress.0.to.1.ipBlock.cidr",
        "169.254.0.0/33",
    ),
    Mutation("etcd_is_where_settings_say", "Service/etcd", "spec.publishNotReadyAddresses"),
    Mutation(
        "certificates_are_issued",
        "Certificate/router-tls",
        "spec.issuerRef.kind",
        "ClusterIssuer",
    ),
)
