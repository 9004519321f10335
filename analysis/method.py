"""How the numbers of a report came about: what every result file of this suite has in common."""

from __future__ import annotations

METHOD = """\
- A round is timed by three clocks: *wall* from before the first enqueue until the device is done, *issue* while the
  host enqueues, *device* between two events on the stream. Times and decisions here are of the wall clock.
- A number is the median over the rounds of all sessions of a case; its interval is the 95 % percentile bootstrap,
  sessions first, then rounds. No round is dropped.
- A swap copies the K and V of all layers between pinned host memory and the device, on a stream of its own. Swap
  in+out is the sum of two loops timed apart. Bytes were compared on the host once a case; what did not verify has
  no number.
- A recompute is a whole prefill that writes K and V into blocks. Where fewer layers than the model's were timed, it
  is scaled to all of them and says so.
- The ceiling is one contiguous copy of as many bytes in the same session.
- What disturbed a run (a link that came up slow, clocks held down, other processes, a busy host, a copy faster than
  its ceiling) makes a row suspect: marked * in tables, hollow in pictures, never removed.
- *Measured* numbers come from the result files named below, *published* ones from others (each with its source),
  *modelled* ones from data sheets.
"""
