"""Renamed entries of older checkpoints: old name -> current name. Without torch."""

from __future__ import annotations

SETTINGS = {"explore": "mid_episode_starts", "excerpt": "truncate_after", "bank": "schedule_buffer"}
"""Settings of algo=tgpo."""

COMPANION = {"bank": "buffer", "midway": "frontier"}
"""What algo=tgpo keeps beside PPO."""

FIGURES = {"faults": "diverged"}
"""Figures of an iteration."""
