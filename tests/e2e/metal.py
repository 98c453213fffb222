"""An Existing cluster of one CPU pool: its nodes in the lab, and its manifests."""

from __future__ import annotations

SEED = """
clusters:
  metal:
    version: "1.36.1"
    nodes:
    - {name: room, cpus: 8, memoryGiB: 32}
    - name: cpu
      cpus: 8
      memoryGiB: 32
      labels: {modelplane.ai/pool: cpu, modelplane.ai/cpu: "true"}
      taints: [{key: modelplane.ai/cpu, value: "true"}]
"""
METAL = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: metal-cpu}
spec:
  devices:
  - {name: cpu, driver: dra.cpu, deviceClassName: dra.cpu, capacity: {cpu: {value: "6"}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: metal}
spec:
  cluster:
    source: Existing
    existing: {secretRef: {name: metal-kubeconfig, key: kubeconfig}}
  nodePools:
  - {name: cpu, className: metal-cpu, nodeCount: 1}
"""
