"""Steps: each asks for what is missing of one thing and records what it saw. None waits for itself."""

from resources.steps.components import ensure_base, ensure_component
from resources.steps.control_plane import ensure_control_plane
from resources.steps.deployments import ensure_deployment
from resources.steps.devices import observe_devices
from resources.steps.pools import ensure_pool
from resources.steps.result import StepResult

__all__ = [
    "StepResult",
    "ensure_base",
    "ensure_component",
    "ensure_control_plane",
    "ensure_deployment",
    "ensure_pool",
    "observe_devices",
]
