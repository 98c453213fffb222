"""Small fleets as texts: good, refused, invalid."""

from __future__ import annotations

from modelplane_dagster.manifests.fleet import Fleet, build_fleet

CLASSES = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  provisioning: {provider: EKS, eks: {instanceType: g6.xlarge, diskSizeGb: 100}}
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: cpus}
spec:
  devices:
  - {name: cpus, driver: dra.cpu, deviceClassName: dra.cpu, capacity: {cpu: {value: "4"}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: amd}
spec:
  devices:
  - {name: gpu, driver: gpu.amd.com, deviceClassName: gpu.amd.com}
"""
GOOD = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: east}
spec:
  cluster: {source: EKS, eks: {region: us-east-1}}
  nodePools:
  - {name: l4, className: l4}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: rack}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: rack-kubeconfig}}}
  nodePools:
  - {name: cpu, className: cpus}
  - {name: mi, className: amd}
"""
# AMD's GPUs on EKS: no component of its list serves them.
REFUSED = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: amd-on-eks}
spec:
  cluster: {source: EKS, eks: {region: us-east-1}}
  nodePools:
  - {name: l4, className: l4}
  - {name: mi, className: amd-eks}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: amd-eks}
spec:
  provisioning: {provider: EKS, eks: {instanceType: g4ad.xlarge, diskSizeGb: 100}}
  devices:
  - {name: gpu, driver: gpu.amd.com, deviceClassName: gpu.amd.com}
---
# An own cluster without a gate of its clouds: nobody brings this driver.
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: gaudi}
spec:
  devices:
  - {name: gaudi, driver: gaudi.intel.com, deviceClassName: gaudi.intel.com}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: gaudi-rack}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: gaudi-kubeconfig}}}
  nodePools:
  - {name: cpu, className: cpus}
  - {name: gaudi, className: gaudi}
"""
# A class that isn't there, and a cluster whose manifest is wrong.
UNKNOWN = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: lost}
spec:
  cluster: {source: EKS, eks: {region: us-east-1}}
  nodePools:
  - {name: l4, className: no-such-class}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: typo}
spec:
  cluster: {source: EKS, eks: {regoin: us-east-1}}
  nodePools:
  - {name: l4, className: l4}
"""
MODEL = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: tiny, namespace: ml}
spec:
  replicas: 1
  template:
    spec:
      engines:
      - name: engine
        members:
        - role: Standalone
          nodeSelector:
            devices:
            - {name: gpu, count: 1, selectors: [{cel: 'device.driver == "gpu.nvidia.com"'}]}
          template:
            spec:
              containers:
              - {name: engine, image: 'docker.io/vllm/vllm-openai:v0.11.0', args: [--model=a/b]}
"""


def fleet(*texts: str) -> Fleet:
    return build_fleet([(f"{n}.yaml", text.encode()) for n, text in enumerate(texts)])
