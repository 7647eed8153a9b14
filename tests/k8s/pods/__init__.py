"""A small Kubernetes for tests: runs the pods of rendered manifests as containers, with podman.

What is as in a cluster: each pod has a network namespace and an address of its own; environment,
volumes, security contexts and limits are those of its spec; init containers, native sidecars,
probes, restarts, preStop hooks and grace periods work as kubelet's; Deployments, StatefulSets and
DaemonSets roll as their strategies say; nodes have a /dev/shm each, and can be drained, as far as
disruption budgets allow; Services have addresses and names, and their endpoints are late, by as
much as a test wants.

Nodes may have labels and devices: a pod waits until one that it selects has as many as it wants.

What is not: nodes are names; a Service is a proxy in this process, not DNAT; NetworkPolicies,
ServiceAccounts and quotas are not enforced; what autoscales is not there. A field that nothing here
knows is an error and not passed over: see `objects.supported`.
"""
