"""One random cluster, decided three times: by a real control plane, by the lab's controllers, and by the plan's rules."""
