"""The product on a real control plane."""
