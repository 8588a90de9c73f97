"""Which nodes of one provider reach each other, so that they can run one job together.

link_reports.py    what both nodes reported of a link, and what follows from it
links.py           which pairs of nodes are probed, and when; the links of a node
overlays.py        how the programs of a node can reach those of others
"""
