"""peakline in the tools that people use: one file each, which imports its library when it is used.

Nothing here opens a connection or a port, except where its user names one.
"""
