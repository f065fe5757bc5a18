"""Server logs: bytes in, facts out.

``lines`` cuts bytes into lines, ``frame`` takes the frame off a line, one module per
engine knows the messages, ``failures`` knows what failing looks like, ``samples`` the
lines of a running server, and ``state`` collects what they say. No cause is claimed
here; ``stepscope.analysis.boot`` does that.
"""
