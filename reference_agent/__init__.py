"""The reference agent: a small agent server, which a sandbox runs unless its spec says otherwise.

python -m reference_agent [--host 127.0.0.1] [--port 8000]

With a model (`LLM_MODEL`, or `agent.llm` of a start request) it thinks; without one it executes the `run: CMD` lines of
messages. From the outside in: `__main__.py` the program, `api.py` HTTP and the conversations, `conversation.py` the
life of one and what waits for a person, `log.py` what has happened, the file that keeps it and the client that posts
it, `events.py` the events. `services.py`, `commands.py` and `tunnels.py` serve a sandbox's files, commands, terminals
and ports.

What the agent does next is decided by a `Mind` (`mind.py`): the rule there, or the one that asks a model.
`tools.py` reads the calls. `toolbox.py` executes them, with `search.py`, `web.py` and `mcp.py`, and knows what
`repository.py` reads of the folder and what the client said of its agent. An agent of yours is another `Mind`, which
`api.py` gives to conversations.
"""
