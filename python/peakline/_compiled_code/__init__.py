"""Whose the buffers of compiled code are, as far as Inductor's metadata tells.

Inductor writes a Python function for each graph: it allocates buffers and launches the kernels that
fill them. A comment beside each kernel names the nodes of the graph that it computes, and a node
knows the module and the line that it was traced from. While a run is tracked, the function in
memory tells the recording of each buffer; the file that Inductor wrote stays as it is.

  origins.py    what a graph's nodes know
  buffers.py    which nodes a buffer of the written code belongs to
  watching.py   both together, for every graph that is compiled or loaded while a run is tracked
"""

from peakline._compiled_code.watching import watch_compiled_code

__all__ = ["watch_compiled_code"]
