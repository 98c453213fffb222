"""A small Kubernetes API: what the product, helm 4 and kubectl use of it, for many clusters in one process."""
