"""Audits: where pods may and do run, what devices are published, what stands in the way. Pure; nothing here reads a cluster."""
