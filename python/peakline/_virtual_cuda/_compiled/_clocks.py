"""Clocks of GPUs, in the vendor's numbers: what Inductor's rules of thumb divide by each other."""

from __future__ import annotations

from typing import NamedTuple


class Clocks(NamedTuple):
    sm_mhz: int  # the highest
    memory_mhz: int
    bus_bits: int


# By a part of the name that torch gives; the first that fits counts.
_KNOWN = {
    "H200": Clocks(1980, 3201, 6144),
    "H100 PCIe": Clocks(1755, 1593, 5120),
    "H100": Clocks(1980, 2619, 5120),
    "B200": Clocks(1965, 3996, 8192),
    "GB200": Clocks(2062, 3996, 8192),
    "A100-SXM4-80GB": Clocks(1410, 1593, 5120),
    "A100": Clocks(1410, 1215, 5120),
    "V100": Clocks(1530, 877, 4096),
    "A10": Clocks(1695, 6251, 384),
    "L40": Clocks(2520, 9001, 384),
    "L4": Clocks(2040, 6251, 192),
    "T4": Clocks(1590, 5001, 256),
    "A6000": Clocks(2100, 8001, 384),
    "6000 Ada": Clocks(3105, 10001, 384),
    "5090": Clocks(2407, 14001, 512),
    "4090": Clocks(2520, 10501, 384),
    "4080": Clocks(2505, 11201, 256),
    "3090": Clocks(1695, 9751, 384),
    "3080": Clocks(1710, 9501, 320),
}


def clocks_of(name: str) -> Clocks:
    for part, clocks in _KNOWN.items():
        if part in name:
            return clocks
    return _KNOWN["H100"]
