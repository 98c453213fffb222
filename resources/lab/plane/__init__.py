"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler, and kwok for the kubelets."""
