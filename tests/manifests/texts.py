"""Small valid manifests that the cases change by one line."""

CLASS = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata:
  name: l4
spec:
  provisioning:
    provider: EKS
    eks:
      instanceType: g6.xlarge
      accelerator:
        type: nvidia-l4
        count: 1
  devices:
  - name: gpu
    driver: gpu.nvidia.com
    deviceClassName: gpu.nvidia.com
    attributes:
      cudaComputeCapability: {version: "8.9.0"}
    capacity:
      memory: {value: 23034Mi}
"""

CLUSTER = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata:
  name: west
  labels:
    tier: prod
spec:
  cluster:
    source: EKS
    eks:
      region: us-west-2
      kubernetesVersion: "1.36"
  nodePools:
  - name: gpu
    className: l4
    nodeCount: 1
    minNodeCount: 1
    maxNodeCount: 4
    zones: [us-west-2a]
"""

EXISTING = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata:
  name: lab
spec:
  cluster:
    source: Existing
    existing:
      secretRef: {name: lab-kubeconfig}
      externalDrivers:
      - driver: gpu.example.com
        kind: GPU
        taint: example.com/gpu
"""

DEPLOYMENT = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata:
  name: qwen
  namespace: ml
spec:
  replicas: 1
  template:
    spec:
      engines:
      - name: qwen
        members:
        - role: Standalone
          nodeSelector:
            devices:
            - name: gpu
              selectors:
              - cel: device.driver == "gpu.nvidia.com"
          template:
            spec:
              containers:
              - name: engine
                image: vllm/vllm-openai:v0.23.0
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with its one `old` replaced; a case whose `old` isn't there once would test nothing."""
    assert text.count(old) == 1, (text.count(old), old)
    return text.replace(old, new)
