"""What runs on nodes: what they are ordered to do, and what they report.

assignments.py   the desired state of a node, with its signed assignments
reports.py       reported states move attempts and jobs
lost_nodes.py    a node that fell silent loses its leases, and its jobs are tried again
suspicions.py    a gang that lost a peer: which of its nodes send no beat when they are asked for one
generations.py   a gang's lost node is replaced, and the rest of its attempt goes on
resizing.py      more nodes join a gang, or it goes on with fewer
causes.py        of several bad ends of one attempt, the first in truth; what an end counts as
streams.py       logs and events, appended and read by offset
stream_polls.py  polls of them that wait, many at once
events.py        the events among them, read once, for progress and curve
curves.py        what a job's program reported at each step, of the whole run, at a bounded size
curve_points.py  the arithmetic of that, and what is believed of an event
progress.py      how far a job is, by its events
preparing.py     how far it is before its first step, and when it stands still there
receipts.py      which signed receipt of use is accepted
plain_text.py    logs without control characters
run_soon.py      starts a task before its schedule does
"""
