"""The reference agent: a small agent server, which a sandbox runs unless its spec says otherwise.

python -m reference_agent [--host 127.0.0.1] [--port 8000]

With a model (`LLM_MODEL`, or `agent.llm` of a start request) it thinks; without one it executes the `run: CMD` lines of
messages. From the outside in: `__main__.py` the program, `api.py` HTTP, `conversation.py` the life of a conversation
and what waits for a person, `log.py` what has happened, `events.py` the events. `services.py`, `commands.py` and
`tunnels.py` serve a sandbox's files, commands, terminals and ports.

A `Mind` (`mind.py`) decides what the agent does next; put one of your own in its place. `tools.py` reads the calls,
`toolbox.py` executes them, `delegation.py` gives parts of a job to a helper.
"""
