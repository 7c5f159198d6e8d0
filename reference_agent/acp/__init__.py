"""A mind of the reference agent that is another program, which speaks the Agent Client Protocol over stdio.

`agents.toml` lists the agents, `agents.py` reads it. `client.py` runs the program and carries messages.
`permissions.py` turns a request for permission into an action, and a decision into an option. `updates.py` turns
what the program reports into events. `conversation.py` joins these with the log of a conversation.

Source: https://agentclientprotocol.com, protocol version 1, schema 1.19.
"""
