"""Experiments on boosts, one sub-command each: `python -m tools.bench.boost`."""
