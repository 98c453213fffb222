"""The seven legs: a cluster of every source on a real control plane, made by the product and read by others."""
