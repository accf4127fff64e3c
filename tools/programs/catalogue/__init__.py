"""Which programs, with which data and which command, a file for each kind of program."""

from __future__ import annotations

from programs.catalogue.agents import AGENTS
from programs.catalogue.examples import EXAMPLES
from programs.catalogue.generators import GENERATORS
from programs.catalogue.graphs import GRAPHS
from programs.catalogue.language import LANGUAGE
from programs.catalogue.libraries import LIBRARIES
from programs.catalogue.pictures import PICTURES
from programs.catalogue.program import Program
from programs.catalogue.series import SERIES

__all__ = ["PROGRAMS", "Program"]

PROGRAMS = [
    *EXAMPLES,
    *LANGUAGE,
    *PICTURES,
    *GENERATORS,
    *LIBRARIES,
    *GRAPHS,
    *AGENTS,
    *SERIES,
]
