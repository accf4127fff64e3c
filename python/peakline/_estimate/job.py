"""One rank of a job that is not there: the flags, and the environment that torchrun would set."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

ALL_DISTINCT = "all-distinct"
_MOST_DEVICES = 8
# What scripts read of a launcher's environment.
VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
)


def add_arguments(parser: argparse.ArgumentParser, size: Callable[[str], int]) -> None:
    """`size` reads a size as people write it."""
    group = parser.add_argument_group("a job of many ranks")
    group.add_argument(
        "--world-size", type=int, metavar="N", help="how many ranks the job has; default: 1"
    )
    group.add_argument(
        "--rank", type=int, metavar="R", help="which of them is estimated; default: 0"
    )
    group.add_argument(
        "--ranks",
        choices=[ALL_DISTINCT],
        help="estimate one rank of each kind (stages, uneven shards), and show the largest",
    )
    group.add_argument(
        "--local-world-size",
        type=int,
        metavar="N",
        help=f"ranks on one machine; default: all of them, at most {_MOST_DEVICES}",
    )
    group.add_argument(
        "--nccl-memory",
        type=size,
        metavar="SIZE",
        help="what NCCL takes for each communicator, outside torch's allocator; default: a guess",
    )
    group.add_argument(
        "--routing-imbalance",
        type=float,
        default=1.0,
        metavar="F",
        help="tokens that this rank's experts get, as a multiple of the average; default: 1",
    )


def check(args: argparse.Namespace, refuse: Callable[[str], Any]) -> None:
    """Calls `refuse` with one sentence when the flags cannot be meant together."""
    world = args.world_size
    if world is None:
        if args.rank is not None or args.ranks or args.local_world_size is not None:
            refuse("--rank, --ranks and --local-world-size need --world-size")
        return
    if world < 1:
        refuse(f"--world-size takes a number from 1, and got {world}")
    if args.rank is not None and args.ranks:
        refuse("give --rank or --ranks, not both")
    if not 0 <= (args.rank or 0) < world:
        refuse(f"--rank takes 0 to {world - 1} in a world of {world}, and got {args.rank}")
    if args.local_world_size is not None and not 1 <= args.local_world_size <= world:
        refuse(f"--local-world-size takes 1 to {world}, and got {args.local_world_size}")
    if args.routing_imbalance < 0:
        refuse(f"--routing-imbalance takes a number from 0, and got {args.routing_imbalance}")


def devices(args: argparse.Namespace) -> int:
    """How many GPUs the program sees: a machine's, unless it was said."""
    if args.devices is not None:
        return int(args.devices)
    return min(_per_machine(args), _MOST_DEVICES) if args.world_size else 1


def _per_machine(args: argparse.Namespace) -> int:
    return int(args.local_world_size or min(args.world_size, _MOST_DEVICES))


def set_environment(args: argparse.Namespace, rank: int) -> None:
    """What torchrun sets for rank `rank`. Without --world-size the environment stays as it is."""
    if not args.world_size:
        return
    local = _per_machine(args)
    machines = -(-args.world_size // local)
    os.environ.update(
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world_size),
            "LOCAL_RANK": str(rank % local),
            "LOCAL_WORLD_SIZE": str(local),
            "GROUP_RANK": str(rank // local),
            "GROUP_WORLD_SIZE": str(machines),
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(args.world_size),
            "ROLE_NAME": "default",
            "NODE_RANK": str(rank // local),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "none",
        }
    )
