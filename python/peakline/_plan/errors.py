"""What keeps a plan from being read or applied, as one sentence."""

from __future__ import annotations

from peakline._ending import Ending

BAD_USAGE = 2


class PlanError(ValueError):
    """A plan that cannot be read, or that names what is not there."""


class LeverRefused(Ending):
    """A script cannot have this change, or would train otherwise with it. Ends the script."""

    status = BAD_USAGE
    partial = True


class NoCluster(Exception):
    """A cluster cannot be reached, or its library is not installed; the text is one sentence."""
