"""What a computer downloads to become a node, and the page of a node.

    manifests.py     the published wheels, each described by a manifest that the marketplace signs
    node_views.py    the page of one node: whether it is listed, and at what price
    urls.py          their addresses
    views.py         the install script, manifests, wheels, and bytes to measure a connection with
    wheel.py         makes the agent's wheel of the code that runs here

The script itself (install.sh) lies beside these modules.
"""
