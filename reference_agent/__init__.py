"""The reference agent: a small agent server, the default of a sandbox: `python -m reference_agent [--host] [--port]`.

With a model (`LLM_MODEL`, or `agent.llm` of a start) it thinks; without one it executes `run: CMD` lines of messages.
A `Mind` (`mind.py`) decides the next step: replace it to write your own agent. `tools.py` parses calls, `toolbox.py`
executes them. From the outside in: `__main__.py`, `api.py`, `conversation.py`, `log.py`, `events.py`.
"""
