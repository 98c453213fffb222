"""Simulated clouds: each speaks its own wire shapes, with its own traps, over one shared state machine."""
