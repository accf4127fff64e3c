# ruff: noqa: E501 (commands in one line)
"""Reinforcement learning."""

from __future__ import annotations

from programs.catalogue.program import Program

_RL = "vwxyzjn/cleanrl"

AGENTS = [
    Program("cleanrl_ppo", _RL, ".", "cleanrl/ppo.py"),
    Program("cleanrl_dqn", _RL, ".", "cleanrl/dqn.py -- --learning-starts 200", paths=(".",)),
    Program("cleanrl_c51", _RL, ".", "cleanrl/c51.py -- --learning-starts 200", paths=(".",)),
    Program("cleanrl_pqn", _RL, ".", "cleanrl/pqn.py"),
    Program(
        "rl_zoo_ppo",
        "DLR-RM/rl-baselines3-zoo",
        ".",
        "-m rl_zoo3.train -- --algo ppo --env CartPole-v1 --device cuda --n-eval-envs 1 --log-folder out",
    ),
]
