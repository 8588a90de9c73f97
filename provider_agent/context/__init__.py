"""What every loop of the agent shares, below the loops themselves.

agent_context.py    one node: its keys, its journal, its executor, its connection to the server
heartbeat.py        how often the agent contacts the server, and when it last did
failure_count.py    programs in a row that failed, for which the node may be to blame
"""

from provider_agent.context.agent_context import AgentContext

__all__ = ["AgentContext"]
